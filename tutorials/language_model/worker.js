// SPDX-License-Identifier: Apache-2.0
// Runs the language model beside the page. Gets {question}, {stop} and {forget}; sends {loaded, all}, {ready}, {piece}, and at
// the end of an answer {tokens, seconds} or {error}.
const address = new URL("index.js", new URL(new URLSearchParams(location.search).get("package"), location.href));
const progress = (loaded, all) => postMessage({ loaded, all });
const model = import(address).then(({ load }) => load({ progress }));
let stop = null;

async function answer(question) {
  const loaded = await model;
  const controller = (stop = new AbortController());
  const [begin, before] = [performance.now(), loaded.length];
  try {
    for await (const piece of loaded.ask(question, { signal: controller.signal })) postMessage({ piece });
  } catch (error) {
    if (!controller.signal.aborted) throw error;
  }
  postMessage({ tokens: loaded.length - before, seconds: (performance.now() - begin) / 1000 });
}

onmessage = async ({ data }) => {
  try {
    if (data.question !== undefined) await answer(data.question);
    if (data.stop) stop?.abort();
    if (data.forget) (await model).reset();
  } catch (error) {
    postMessage({ error: error.message });
  }
};
model.then(() => postMessage({ ready: true }), (error) => postMessage({ error: error.message }));
