// The page at "/": a chat and the server's state, in one file that loads nothing from anywhere else.
#include "weft/serve/api/handlers.h"

namespace weft::api {
namespace {

constexpr std::string_view kPage = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>weft</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 0 auto; padding: 1rem; color: #222; }
  header { display: flex; gap: 1rem; align-items: baseline; flex-wrap: wrap; }
  h1 { font-size: 1.2rem; margin: 0; } small { color: #666; }
  #talk { min-height: 50vh; margin: 1rem 0; } .said { white-space: pre-wrap; padding: .6rem .8rem; border-radius: .5rem; margin: .5rem 0; }
  details { color: #888; font-size: .9rem; white-space: pre-wrap; } .user { background: #eef3fa; } .assistant { background: #f6f6f4; } .error { background: #fbe9e7; }
  form { display: flex; gap: .5rem; } textarea { flex: 1; font: inherit; padding: .5rem; }
  input, select, button { font: inherit; padding: .2rem .5rem; }
  @media (prefers-color-scheme: dark) { body { background: #1b1b1b; color: #ddd; } .user { background: #22303f; }
    .assistant { background: #262626; } .error { background: #4a2522; } textarea, input, select, button { background: #262626; color: #ddd; } }
</style></head><body>
<header><h1>weft</h1><select id="model" aria-label="model"></select>
<input id="key" type="password" placeholder="API key, if needed" autocomplete="off" aria-label="API key">
<small id="state"></small></header>
<div id="talk" aria-live="polite"></div>
<form id="form"><textarea id="text" rows="3" placeholder="Say something; Ctrl+Enter sends" aria-label="message"></textarea>
<div><button id="send">Send</button><br><button type="button" id="clear">Clear</button></div></form>
<script>
'use strict';
const $ = id => document.getElementById(id);
let talk = [], running = null;
const headers = () => Object.assign({'content-type': 'application/json'}, $('key').value ? {authorization: 'Bearer ' + $('key').value} : {});
function show(role, text) { const d = document.createElement('div'); d.className = 'said ' + role; d.textContent = text; $('talk').append(d); d.scrollIntoView(); return d; }
async function models() {
  try {
    const r = await fetch('/v1/models', {headers: headers()}), list = (await r.json()).data || [];
    const names = list.map(m => m.id);
    if ([...$('model').options].map(o => o.value).join() === names.join()) return;
    $('model').replaceChildren(...names.map(n => new Option(n, n)));
  } catch (e) { }
}
async function state() {
  try {
    const r = await fetch('/metrics', {headers: headers()}), text = await r.text();
    if (!r.ok) { $('state').textContent = JSON.parse(text).error.message; return; }
    const value = name => { let sum = 0; for (const l of text.split('\n')) if (l.startsWith(name + '{')) sum += +l.split(' ').pop(); return sum; };
    $('state').textContent = `${value('vllm:num_requests_running')} running, ${value('vllm:num_requests_waiting')} waiting, cache ${(100 * value('vllm:kv_cache_usage_perc')).toFixed(0)}%, ${value('vllm:generation_tokens_total')} tokens made`;
  } catch (e) { $('state').textContent = 'no answer from the server'; }
}
async function send() {
  const text = $('text').value.trim();
  if (running) { running.abort(); return; }
  if (!text) return;
  $('text').value = ''; show('user', text); talk.push({role: 'user', content: text});
  const out = show('assistant', ''); let said = '', thought = '', box = null;
  running = new AbortController(); $('send').textContent = 'Stop';
  try {
    const r = await fetch('/v1/chat/completions', {method: 'POST', headers: headers(), signal: running.signal,
      body: JSON.stringify({model: $('model').value, messages: talk, stream: true})});
    if (!r.ok) throw new Error((await r.json()).error.message);
    const reader = r.body.pipeThrough(new TextDecoderStream()).getReader(); let rest = '';
    for (;;) {
      const {value, done} = await reader.read(); if (done) break;
      const events = (rest + value).split('\n\n'); rest = events.pop();
      for (const e of events) {
        if (!e.startsWith('data: ') || e === 'data: [DONE]') continue;
        const j = JSON.parse(e.slice(6)); if (j.error) throw new Error(j.error.message);
        const d = j.choices[0] && j.choices[0].delta; if (!d) continue;
        if (d.reasoning_content) {
          if (!box) { box = document.createElement('details'); box.append(Object.assign(document.createElement('summary'), {textContent: 'Thoughts'}), ''); out.before(box); }
          thought += d.reasoning_content; box.lastChild.textContent = thought;
        }
        if (d.content) { said += d.content; out.textContent = said; }
      }
    }
  } catch (e) { if (e.name !== 'AbortError') show('error', e.message); }
  if (said) talk.push(Object.assign({role: 'assistant', content: said}, thought ? {reasoning_content: thought} : {}));
  running = null; $('send').textContent = 'Send';
}
$('form').onsubmit = e => { e.preventDefault(); send(); };
$('text').onkeydown = e => { if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) { e.preventDefault(); send(); } };
$('clear').onclick = () => { talk = []; $('talk').replaceChildren(); };
$('key').onchange = models;
models(); state(); setInterval(() => { models(); state(); }, 2000);
</script></body></html>
)html";

}  // namespace

void show_page(Context&, const http::Request&, const ExchangePointer& exchange) {
  exchange->reply({.content_type = "text/html; charset=utf-8",
                   .body = std::string(kPage),
                   .headers = {{"content-security-policy",
                                "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                                "connect-src 'self'; frame-ancestors 'none'"}}});
}

}  // namespace weft::api
