// weft serve: a model behind the APIs of OpenAI and Anthropic.
#include <pthread.h>

#include <csignal>
#include <thread>

#include "command.h"
#include "find_chat_template.h"
#include "forward_ranks.h"
#include "weft/base/file.h"
#include "weft/base/machine.h"
#include "weft/serve/api/api.h"
#include "weft/serve/constrain/constraint_factory.h"
#include "weft/serve/continuous_engine.h"
#include "weft/serve/http/server.h"

namespace weft::app {
namespace {

struct Options {
  ForwardOptions forward;
  http::ServerOptions server;
  api::ApiLimits limits;
  std::string key_file, name, template_file, tool_format;
  ContinuousOptions engine;
  bool without_prefixes = false;
  int drain_seconds = 30;
  Output output;
};

api::ToolFormat tool_format_of(const Options& o, const ChatTemplate* chat_template) {
  if (!o.tool_format.empty()) {
    if (const auto format = api::parse_tool_format(o.tool_format)) return *format;
    throw UsageError("--tool-format {}: write hermes, llama or mistral", o.tool_format);
  }
  return chat_template ? api::detect_tool_format(*chat_template) : api::ToolFormat::hermes;
}

// SIGTERM and SIGINT, waited for on a thread of its own; a second one ends the program at once.
class StopSignals {
 public:
  StopSignals() {
    ::sigemptyset(&from_outside_);
    for (const int signal : {SIGTERM, SIGINT}) ::sigaddset(&from_outside_, signal);
    waited_for_ = from_outside_;
    ::sigaddset(&waited_for_, kWake);
    ::pthread_sigmask(SIG_BLOCK, &waited_for_, nullptr);
  }
  void wait() {
    int got = 0;
    ::sigwait(&waited_for_, &got);
  }
  void let_through() { ::pthread_sigmask(SIG_UNBLOCK, &from_outside_, nullptr); }
  // Ends the wait of a thread without a signal from outside.
  static void wake(std::thread& thread) { ::pthread_kill(thread.native_handle(), kWake); }

 private:
  static constexpr int kWake = SIGUSR1;
  sigset_t from_outside_, waited_for_;
};

// How many blocks the cache has on all ranks alike: what was asked for, or half of the free memory where that is less
// than whole contexts for all that run.
int64_t choose_blocks(const Options& o, ForwardModel& model) {
  const ModelConfig& config = model.config();
  const int64_t block_tokens = o.engine.block_tokens;
  const int64_t block = block_tokens * cache_bytes_of_token(config, model.mesh().shape(), model.dtype());
  int64_t bytes = o.engine.kv_bytes;
  model.mesh().world().barrier();  // all have their weights
  if (bytes == 0) {
    const int64_t whole = (config.context + block_tokens - 1) / block_tokens * block * o.engine.max_running;
    bytes = std::min(whole, describe_machine().available_bytes / 2);
  }
  const Tensor blocks = model.context().empty(DType::i64, {1});
  *blocks.data<int64_t>() = bytes / block;
  model.mesh().world().broadcast(blocks, model.speaker());
  if (*blocks.data<int64_t>() < 1)
    throw UsageError("--kv-cache {}: a block of {} tokens takes {}; give more or lower --block-tokens",
                     human_bytes(uint64_t(bytes)), block_tokens, human_bytes(uint64_t(block)));
  return *blocks.data<int64_t>();
}

void print_cache(const Options& o, const Engine& engine, const ForwardModel& model) {
  const EngineStats stats = engine.stats();
  const int64_t tokens = stats.kv_blocks * stats.kv_block_tokens;
  const int64_t bytes = tokens * cache_bytes_of_token(model.config(), model.mesh().shape(), model.dtype());
  o.output.text(fmt::format(
      "weft: a cache of {} blocks of {} tokens: {} tokens, {}; up to {} requests at once, {} "
      "tokens a step{}{}",
      stats.kv_blocks, stats.kv_block_tokens, tokens, human_bytes(uint64_t(bytes)), engine.limits().max_running,
      o.engine.tokens_per_step, o.without_prefixes ? ", prefixes are not kept" : "",
      o.engine.most_guesses > 0 ? fmt::format(", up to {} guessed", o.engine.most_guesses) : ""));
  o.output.json({{"event", "cache"}, {"kv_blocks", stats.kv_blocks}, {"kv_tokens", tokens}, {"kv_bytes", bytes}});
}

// On the rank that speaks.
void serve_over_http(const Options& o, StopSignals& signals, ContinuousEngine& engine, const ModelSource& source) {
  const std::unique_ptr<Tokenizer> tokenizer = source.tokenizer();
  std::shared_ptr<const ChatTemplate> chat_template;
  if (auto found = find_chat_template(o.template_file, source, *tokenizer))
    chat_template = std::make_shared<ChatTemplate>(std::move(*found));
  constrain::ConstraintFactory constraints(*tokenizer, engine.limits().vocab, stop_tokens(source, *tokenizer));
  const std::string name = o.name.empty() ? file_name_of(source.path()) : o.name;
  api::Api api({{.name = name,
                 .engine = &engine,
                 .tokenizer = tokenizer.get(),
                 .chat_template = chat_template,
                 .tool_format = tool_format_of(o, chat_template.get()),
                 .end_tokens = stop_tokens(source, *tokenizer),
                 .constraints = &constraints}},
               {.keys = o.key_file.empty() ? api::ApiKeys() : api::ApiKeys::load(o.key_file),
                .only_local_hosts = http::is_loopback(o.server.host),
                .limits = o.limits});
  http::Server server(o.server, api);
  std::thread stopper([&] {
    signals.wait();
    signals.let_through();
    api.begin_drain();
    o.output.text("weft: finishing what is under way; a second signal stops at once");
    const int64_t cut = server.drain(std::chrono::seconds(o.drain_seconds));
    engine.drain(std::chrono::milliseconds(0));
    engine.stop();
    o.output.text(fmt::format("weft: stopped; {} answers were cut", cut));
  });
  api.set_ready();
  const std::string url =
      fmt::format("{}://{}:{}", o.server.tls_cert.empty() ? "http" : "https", o.server.host, server.port());
  o.output.text(fmt::format("weft: serving {} at {}; {} tokens of context, {}", name, url, engine.limits().context,
                            o.key_file.empty() ? "no key needed" : "a key is needed"));
  o.output.json({{"event", "ready"}, {"model", name}, {"url", url}, {"port", server.port()}});
  try {
    engine.run();
  } catch (...) {
    StopSignals::wake(stopper);
    stopper.join();
    throw;
  }
  stopper.join();
}

void serve_model(const Options& o, StopSignals& signals, ForwardModel& model, const ModelSource& source) {
  ContinuousOptions options = o.engine;
  options.kv_blocks = choose_blocks(o, model);
  options.keeps_prefixes = !o.without_prefixes;
  ContinuousEngine engine(model, options);
  if (!engine.is_speaker()) return engine.run();
  print_cache(o, engine, model);
  serve_over_http(o, signals, engine, source);
}

void serve(const Options& o) {
  if (o.key_file.empty() && !http::is_loopback(o.server.host))
    throw UsageError("--host {} can be reached from other machines: name a file with keys with --api-key-file",
                     o.server.host);
  StopSignals signals;
  run_forward(o.forward,
              [&](ForwardModel& model, const ModelSource& source) { serve_model(o, signals, model, source); });
}

void add_engine_options(CLI::App& command, Options& o) {
  const auto add = [&](const char* name, int64_t& value, int64_t least, const char* what) {
    command.add_option(name, value, what)->capture_default_str()->check(CLI::Range(least, int64_t(1) << 20));
  };
  command
      .add_option("--kv-cache", o.engine.kv_bytes,
                  "Memory for keys and values over all ranks, as in 2GiB; else up to half of what is free")
      ->transform(CLI::AsSizeValue(true));
  add("--block-tokens", o.engine.block_tokens, 1, "Tokens of a block of that memory");
  add("--max-running", o.engine.max_running, 1, "Requests in one step; each then has at least a token of it");
  add("--tokens-per-step", o.engine.tokens_per_step, 1, "Tokens of one step, of prompts and answers together");
  add("--max-waiting", o.engine.max_waiting, 0, "Requests in the queue; one more gets 429");
  add("--speculate", o.engine.most_guesses, 0,
      "Tokens of an answer to guess in one step, from what its text said before; answers stay what they are");
  command.add_flag("--no-prefix-cache", o.without_prefixes, "Compute prompts that begin alike each for itself");
}

}  // namespace

void add_serve(CLI::App& program) {
  const auto o = std::make_shared<Options>();
  o->server.max_body_bytes = o->limits.json.max_bytes;
  CLI::App* c = program.add_subcommand("serve", "Serve a model over HTTP, by the APIs of OpenAI and Anthropic");
  o->forward.add_to(*c);
  c->add_option("--host", o->server.host, "The address to listen on; others than this machine's own need keys")
      ->capture_default_str();
  c->add_option("--port", o->server.port, "0: any that is free")->capture_default_str();
  c->add_option("--api-key-file", o->key_file, "Who may use it: a key a line; every route but /health needs one");
  c->add_option("--tls-cert", o->server.tls_cert, "A certificate in PEM form, with its chain");
  c->add_option("--tls-key", o->server.tls_key, "Its key in PEM form");
  c->add_option("--served-model-name", o->name, "What clients call the model; else its folder's name");
  c->add_option("--chat-template", o->template_file, "A file with a chat template; else the model's own");
  c->add_option("--tool-format", o->tool_format, "hermes, llama or mistral; else as the chat template writes calls");
  add_engine_options(*c, *o);
  c->add_option("--max-connections", o->server.max_connections, "More are closed at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  c->add_option("--max-n", o->limits.n, "Answers that a request may ask for to each prompt")
      ->capture_default_str()
      ->check(CLI::Range(1, 128));
  c->add_option("--http-threads", o->server.workers, "Threads that read requests and write answers")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  c->add_option("--drain-seconds", o->drain_seconds, "How long answers under way may take after SIGTERM")
      ->capture_default_str()
      ->check(CLI::Range(0, 86400));
  o->output.add_option(*c);
  c->footer("Example: weft serve Qwen3-0.6B --port 8000; then open http://127.0.0.1:8000/");
  c->callback([o] { serve(*o); });
}

}  // namespace weft::app
