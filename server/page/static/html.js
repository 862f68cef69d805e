// Preact and htm, from one file: the page needs no build step and no import map.

import { html as preactHtml, render, useCallback, useContext, useEffect, useRef, useState, createContext } from "./vendor/htm-preact.js";

export const html = preactHtml;
export { render, useCallback, useContext, useEffect, useRef, useState, createContext };
