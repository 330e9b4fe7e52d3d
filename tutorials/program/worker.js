// SPDX-License-Identifier: Apache-2.0
// Runs a program beside the page. Sends its ports {inputs, outputs} first. Gets {array}, the only input of a run, and sends
// {outputs, ms}; or {error}. {reset} begins a new stream.
const address = new URL("index.js", new URL(new URLSearchParams(location.search).get("package"), location.href));
const plain = (ports) => ports.map(({ name, shape, sampleRate }) => ({ name, shape, sampleRate }));
const loaded = import(address).then(async ({ inputs, load, outputs }) => {
  const model = await load();
  postMessage({ inputs: plain(inputs), outputs: plain(outputs) });
  return model;
});

onmessage = async ({ data }) => {
  try {
    const model = await loaded;
    if (data.reset) return model.reset();
    const begin = performance.now(), outputs = model.run([data.array]);
    postMessage({ outputs, ms: performance.now() - begin });
  } catch (error) {
    postMessage({ error: error.message });
  }
};
loaded.catch((error) => postMessage({ error: error.message }));
