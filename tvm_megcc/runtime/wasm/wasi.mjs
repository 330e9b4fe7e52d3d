// SPDX-License-Identifier: Apache-2.0
// Runs a WebAssembly program for WASI in node, with the current folder: node wasi.mjs PROGRAM ARGUMENTS…
import { readFileSync } from "node:fs";
import { WASI } from "node:wasi";

const [program, ...rest] = process.argv.slice(2);
const wasi = new WASI({ version: "preview1", args: [program, ...rest], preopens: { ".": "." }, returnOnExit: true });
const module = new WebAssembly.Module(readFileSync(program));
const imports = wasi.getImportObject(), instance = new WebAssembly.Instance(module, imports);
globalThis.running = [wasi, imports, instance]; // node 20 frees what nothing refers to behind the call, while it runs
process.exitCode = wasi.start(instance);
