#!/bin/sh
# Makes the namespace and the Secrets that the manifests refer to. Those that exist are left as they are.
set -eu
namespace=${1:-rayctsl}

make() { # name, key
    kubectl --namespace "$namespace" get secret "$1" >/dev/null 2>&1 ||
        od -An -N32 -tx1 /dev/urandom | tr -d ' \n' |
        kubectl --namespace "$namespace" create secret generic "$1" --from-file="$2"=/dev/stdin
}

kubectl get namespace "$namespace" >/dev/null 2>&1 || kubectl create namespace "$namespace"
make rayctsl-ray-token auth_token
make rayctsl-service-token token
make rayctsl-redis password
make rayctsl-postgres password
