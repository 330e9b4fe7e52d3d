// SPDX-License-Identifier: Apache-2.0
// Joins the 128 samples that the browser gives at a time to blocks of `length`, and sends each to the page.
class Microphone extends AudioWorkletProcessor {
  constructor({ processorOptions: { length } }) {
    super();
    this.length = length;
    this.block = new Float32Array(length);
    this.filled = 0;
  }

  process([[samples]]) {
    for (let at = 0; samples && at < samples.length; ) {
      const part = samples.subarray(at, at + this.length - this.filled);
      this.block.set(part, this.filled);
      this.filled += part.length;
      at += part.length;
      if (this.filled === this.length) {
        this.port.postMessage(this.block, [this.block.buffer]);
        this.block = new Float32Array(this.length);
        this.filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("microphone", Microphone);
