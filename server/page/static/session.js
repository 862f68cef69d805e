// The caller, and the models and vector DBs of the server: loaded once, and again after changes.

import { get, hasKey } from "./api.js";
import { createContext, useCallback, useContext, useEffect, useState } from "./html.js";

/**
 * @typedef {object} Session
 * @property {any} who the caller: role, tenant, user, groups, is_operator
 * @property {any[]} dbs the vector DBs
 * @property {string[]} languageModels the one that answers comes first
 * @property {any[]} embeddingModels
 * @property {() => Promise<void>} refresh
 * @property {(text: string, failed?: boolean) => void} say
 */

/** @type {any} */
export const Shared = createContext(null);

/** @returns {Session} */
export const useSession = () => useContext(Shared);

const ROLES = ["reader", "writer", "admin"];

/**
 * Why the caller may not do something; "" if they may.
 * @param {any} who
 * @param {string} role the minimum role
 * @param {boolean} [operator] true if only an admin without a tenant may
 */
export function refusal(who, role, operator = false) {
  if (ROLES.indexOf(who.role) < ROLES.indexOf(role)) return `This needs the role ${role}; yours is ${who.role}.`;
  return operator && who.tenant ? `This needs the role ${role} without a tenant; yours is of ${who.tenant}.` : "";
}

/** Load what every view needs. @returns {Promise<Omit<Session, "refresh" | "say">>} */
export async function load() {
  const [who, listed, models] = await Promise.all([get("v1/whoami"), get("v1/vector-dbs"), get("v1/models")]);
  const language = models.data.filter((/** @type {any} */ one) => one.model_type === "llm" && !one.metadata.vector_db_id);
  return {
    who,
    dbs: listed.data,
    languageModels: language.sort((/** @type {any} */ one, /** @type {any} */ other) => Number(other.metadata.default) - Number(one.metadata.default)).map((/** @type {any} */ one) => one.identifier),
    embeddingModels: models.data.filter((/** @type {any} */ one) => one.model_type === "embedding"),
  };
}

/**
 * The reply to a request; late replies to earlier requests are dropped.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} request
 * @param {unknown[]} of the request is sent again when one of these changes
 * @returns {{ data: T | null, error: Error | null, loading: boolean, reload: () => void }}
 */
export function useLoad(request, of) {
  const [state, set] = useState(/** @type {any} */ ({ data: null, error: null, loading: true }));
  const [turn, again] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    set((/** @type {any} */ before) => ({ ...before, loading: true }));
    request(abort.signal).then(
      (data) => abort.signal.aborted || set({ data, error: null, loading: false }),
      (error) => abort.signal.aborted || set({ data: null, error, loading: false }),
    );
    return () => abort.abort();
  }, [...of, turn]);
  const reload = useCallback(() => again((/** @type {number} */ before) => before + 1), []);
  return { ...state, reload };
}

/** @param {any} error @returns {string} the message for the user */
export const told = (error) => (error?.status === 401 && !hasKey() ? "This server needs an API key." : error?.message ?? "");
