/** The service's token: asked for when it is needed, kept for this tab only. */

const KEY = "rayctsl-token";
const find = (id) => document.getElementById(id);
let asking = null;

export const token = () => sessionStorage.getItem(KEY);

export function forgetToken() {
  sessionStorage.removeItem(KEY);
  location.reload();
}

/** Opens the dialog, once for all who ask at the same time. Resolves to whether there is a new token. */
export function askForToken(wrong) {
  asking ??= ask(wrong).finally(() => {
    asking = null;
  });
  return asking;
}

function ask(wrong) {
  const dialog = find("token-dialog");
  const input = find("token-input");
  find("token-error").textContent = wrong ? "The service does not accept this token." : "";
  input.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    const done = new AbortController();
    const submit = (event) => {
      event.preventDefault();
      const text = input.value.trim();
      // A header holds printable ASCII only; anything else would fail before it is sent.
      if (!/^[!-~]+$/.test(text)) {
        find("token-error").textContent = "A token has letters, digits and signs, without spaces.";
        return;
      }
      sessionStorage.setItem(KEY, text);
      find("forget").hidden = false;
      dialog.close("given");
    };
    const options = { signal: done.signal };
    find("token-form").addEventListener("submit", submit, options);
    find("token-cancel").addEventListener("click", () => dialog.close(), options);
    dialog.addEventListener(
      "close",
      () => {
        done.abort();
        input.value = "";
        resolve(dialog.returnValue === "given");
      },
      options,
    );
  });
}
