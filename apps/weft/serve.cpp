// weft serve: a model behind the APIs of OpenAI and Anthropic.
#include <pthread.h>

#include <csignal>
#include <thread>

#include "command.h"
#include "forward_ranks.h"
#include "weft/base/file.h"
#include "weft/serve/api/api.h"
#include "weft/serve/constrain/constraint_factory.h"
#include "weft/serve/http/server.h"
#include "weft/serve/sequential_engine.h"

namespace weft::app {
namespace {

constexpr uint64_t kMostTemplateBytes = uint64_t(1) << 20;

struct Options {
  ForwardOptions forward;
  http::ServerOptions server;
  api::ApiLimits limits;
  std::string key_file, name, template_file, tool_format;
  int64_t max_waiting = 256;
  int drain_seconds = 30;
  Output output;
};

std::shared_ptr<const ChatTemplate> template_of(const Options& o, const std::string& model) {
  if (!o.template_file.empty())
    return std::make_shared<ChatTemplate>(read_file(o.template_file, kMostTemplateBytes),
                                          file_name_of(o.template_file));
  if (!ChatTemplate::exists_in(model)) return nullptr;
  return std::make_shared<ChatTemplate>(ChatTemplate::load(model));
}

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
    ::sigemptyset(&signals_);
    for (const int signal : {SIGTERM, SIGINT}) ::sigaddset(&signals_, signal);
    ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }
  void wait() {
    int got = 0;
    ::sigwait(&signals_, &got);
  }
  void let_through() { ::pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr); }

 private:
  sigset_t signals_;
};

void serve_model(const Options& o, StopSignals& signals, ForwardModel& model, const ModelSource& source) {
  const std::unique_ptr<Tokenizer> tokenizer = source.tokenizer();
  SequentialEngine engine(model, {.max_waiting = o.max_waiting});
  const std::shared_ptr<const ChatTemplate> chat_template = template_of(o, source.path());
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
  engine.run();
  stopper.join();
}

void serve(const Options& o) {
  if (o.key_file.empty() && !http::is_loopback(o.server.host))
    throw UsageError("--host {} can be reached from other machines: name a file with keys with --api-key-file",
                     o.server.host);
  StopSignals signals;
  run_forward(o.forward,
              [&](ForwardModel& model, const ModelSource& source) { serve_model(o, signals, model, source); });
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
  c->add_option("--max-waiting", o->max_waiting, "Requests in the queue; one more gets 429")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20));
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
