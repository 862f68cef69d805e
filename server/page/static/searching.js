// The search settings of a question. The address has those that differ from the registration.

const FUSION = { type: "weighted", normalization: "z_score" };
/** Names in the address, with their defaults. */
export const DEFAULTS = { k: "5", threshold: "0", tokens: "2000" };

/**
 * The settings of a request that differ from the registration.
 * @param {URLSearchParams} query of the address
 * @param {any} db
 * @param {string} [mode] instead of the chosen one
 */
export function searching(query, db, mode) {
  const chosen = mode ?? query.get("mode") ?? db.search_mode;
  const [alpha, lambda, mmr, filter] = ["alpha", "lambda", "mmr", "filter"].map((name) => query.get(name));
  /** @type {Record<string, any>} */
  const options = { max_chunks: numeric(query, "k"), score_threshold: numeric(query, "threshold") };
  if (mode || chosen !== db.search_mode) options.mode = chosen;
  if (alpha && chosen === "hybrid") options.ranker = { ...(db.ranker?.type === "weighted" ? db.ranker : FUSION), alpha: Number(alpha) };
  const wasMMR = db.rerank?.type === "mmr";
  const isMMR = mmr ? mmr === "on" : wasMMR;
  if (wasMMR && !isMMR) options.rerank = { type: "none" };
  if (isMMR && (!wasMMR || lambda)) options.rerank = { ...(wasMMR ? db.rerank : {}), type: "mmr", lambda: Number(lambda ?? 0.5) };
  if (filter) options.filters = JSON.parse(filter);
  return options;
}

/** @param {URLSearchParams} query @param {"k" | "threshold" | "tokens"} name */
export const numeric = (query, name) => Number(query.get(name) ?? DEFAULTS[name]);

/** @param {URLSearchParams} query @param {any} db @returns {string[]} the vector DBs to search */
export const askedDBs = (query, db) => [...new Set([db.identifier, ...query.getAll("also")])];

/** Whether the address changes anything about the search. @param {URLSearchParams} query */
export const isChanged = (query) => ["mode", "k", "threshold", "alpha", "lambda", "mmr", "filter", "tokens"].some((name) => query.has(name));

/** The user that an admin asks as; null for none. @param {URLSearchParams} query */
export function asUser(query) {
  const groups = (query.get("groups") ?? "").split(/[\s,]+/).filter(Boolean);
  const user = query.get("as") ?? "";
  return user || groups.length ? { user, groups } : null;
}

/**
 * The request to the RAG tool.
 * @param {URLSearchParams} query
 * @param {any} db
 */
export function ragRequest(query, db) {
  const config = { ...searching(query, db), max_tokens_in_context: numeric(query, "tokens") };
  const as = asUser(query);
  return { content: query.get("q") ?? "", vector_db_ids: askedDBs(query, db), query_config: config, ...(as && { as_user: as }) };
}

/**
 * The request for an answer. A vector DB can be the model; changed settings need a language model
 * with the search tool.
 * @param {URLSearchParams} query
 * @param {any} db
 * @param {string} model
 */
export function answerRequest(query, db, model) {
  const ids = askedDBs(query, db);
  const as = asUser(query);
  const shared = { input: query.get("q") ?? "", stream: true, store: false, include: ["file_search_call.results"], ...(as && { as_user: as }) };
  if (!isChanged(query)) return { model: `corral/${ids.join("+")}`, ...shared };
  const { mode, max_chunks: most, score_threshold: least, ...others } = searching(query, db);
  const tool = { type: "file_search", vector_store_ids: ids, max_num_results: most, max_tokens_in_context: numeric(query, "tokens"), ...others };
  if (mode) Object.assign(tool, { search_mode: mode });
  if (least) Object.assign(tool, { ranking_options: { score_threshold: least } });
  return { model, ...shared, tools: [tool], tool_choice: { type: "file_search" } };
}
