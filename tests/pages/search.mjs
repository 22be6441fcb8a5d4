// Asks a built site as its search box does, with the site's own worker: `node search.mjs SITE QUERY…`
// prints one line of JSON for each query, the addresses of the pages it finds, best first.
import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";

const [site, ...queries] = process.argv.slice(2);
const READY = 0;
const QUERY = 2;

let handle;
let answered;
const worker = {
  addEventListener: (_kind, handler) => (handle = handler),
  postMessage: (message) => answered(message),
  importScripts() {},
  console, setTimeout, TextEncoder, URL,
};
worker.self = worker;
vm.createContext(worker);
const folder = path.join(site, "assets", "javascripts", "workers");
const script = fs.readdirSync(folder).find((name) => /^search.*\.js$/.test(name));
vm.runInContext(fs.readFileSync(path.join(folder, script), "utf8"), worker);

function ask(type, data) {
  return new Promise((resolve) => {
    answered = resolve;
    handle({ data: { type, data } });
  });
}

const index = JSON.parse(fs.readFileSync(path.join(site, "search", "search_index.json")));
await ask(READY, { ...index, options: { suggest: false } });
for (const query of queries) {
  const answer = await ask(QUERY, query);
  console.log(JSON.stringify(answer.data.items.map((page) => page[0].location)));
}
