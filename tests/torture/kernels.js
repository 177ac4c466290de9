// Programs that a compiler at run time turns into machine code, with garbage collection, threads and WebAssembly.
'use strict';
const { Worker, isMainThread, parentPort } = require('worker_threads');

function sort(count) {
  const list = Array.from({ length: count }, (_, i) => (i * 7919) % 10007);
  list.sort((a, b) => a - b || 0);
  return list.reduce((sum, value, i) => (sum * 31 + value * i) % 1000003, 0);
}

function matrix(size) {
  const a = new Float64Array(size * size).map((_, i) => (i % 13) - 6);
  const product = new Float64Array(size * size);
  for (let i = 0; i < size; i++)
    for (let k = 0; k < size; k++)
      for (let j = 0; j < size; j++) product[i * size + j] += a[i * size + k] * a[k * size + j];
  return product.reduce((sum, value) => sum + value, 0);
}

function text(count) {
  const seen = new Map();
  for (let i = 0; i < count; i++) {
    const word = ((i * 7919) % 10007).toString(16).replace(/[0-4]/g, '-');
    seen.set(word, (seen.get(word) || 0) + 1);
  }
  return JSON.stringify([...seen].sort().slice(0, 20));
}

function objects(depth) {
  const make = (level) => (level === 0 ? { leaf: 1 } : { left: make(level - 1), right: make(level - 1) });
  const count = (tree) => (tree.leaf ? 1 : count(tree.left) + count(tree.right));
  let sum = 0;
  for (let i = 0; i < 10; i++) sum += count(make(depth));
  return sum;
}

function errors(count) {
  let caught = 0;
  for (let i = 0; i < count; i++) {
    try {
      if (i % 3 === 0) null.property;
      else if (i % 3 === 1) throw new RangeError(String(i));
    } catch (error) {
      caught += error.name.length;
    }
  }
  return caught;
}

// (module (func (export "f") (param i32) (result i32) — the sum of the numbers below the argument's
const wasm = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 6, 1, 96, 1, 127, 1, 127, 3, 2, 1, 0, 7, 5, 1, 1, 102, 0, 0, 10, 34, 1, 32, 1, 1, 127, 3,
  64, 32, 0, 69, 4, 64, 5, 32, 1, 32, 0, 106, 33, 1, 32, 0, 65, 1, 107, 33, 0, 12, 1, 11, 11, 32, 1, 11,
]);

if (isMainThread) {
  console.log(sort(60000), matrix(120), objects(12), errors(20000));
  console.log(text(20000));
  console.log(WebAssembly.validate(wasm) ? new WebAssembly.Instance(new WebAssembly.Module(wasm)).exports.f(300000) : 'no module');
  const workers = [1, 2, 3].map(() => new Promise((resolve) => new Worker(__filename).on('message', resolve)));
  Promise.all(workers).then((results) => console.log(results.join(' ')));
} else {
  parentPort.postMessage(sort(20000) + objects(10));
}
