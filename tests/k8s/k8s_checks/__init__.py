"""How the manifests are read and judged: rendering, the operator's behaviour, and rules that give sentences."""
