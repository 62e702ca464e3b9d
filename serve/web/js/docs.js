/** The API page: the vendored Swagger UI over the service's own openapi.json, with this tab's key when it has one. */

import { token } from "./token.js";

globalThis.SwaggerUIBundle({
  url: new URL("openapi.json", document.baseURI).href,
  dom_id: "#api",
  deepLinking: true,
  docExpansion: "list",
  validatorUrl: null,
  requestInterceptor(request) {
    if (token()) request.headers.Authorization ??= `Bearer ${token()}`;
    return request;
  },
});
