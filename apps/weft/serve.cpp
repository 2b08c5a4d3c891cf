// weft serve: one or several models behind the APIs of OpenAI and Anthropic.
#include <pthread.h>

#include <csignal>
#include <future>
#include <thread>

#include "rank_resources.h"
#include "serve_engine.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/serve/api/api.h"
#include "weft/serve/http/server.h"

namespace weft::app {
namespace {

struct Options {
  EngineOptions model;              // the first
  std::vector<std::string> models;  // "name=folder" of each, where they are named
  http::ServerOptions server;
  api::ApiLimits limits;
  std::string key_file;
  int drain_seconds = 30;
};

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

// A model beside the first: it has an engine and a thread of its own.
class Neighbour {
 public:
  explicit Neighbour(EngineOptions options)
      : options_(std::move(options)), thread_([this] {
          try {
            run_engine(options_, [this](ContinuousEngine& engine, const api::ServedModel& model) {
              engine_ = &engine;
              model_.set_value(model);
              run(engine, model.name);
              is_released_.get_future().wait();  // nobody points to the model any more
            });
          } catch (...) {
            if (!engine_) model_.set_exception(std::current_exception());
          }
        }) {}
  ~Neighbour() {
    if (is_waiting_) model_.get_future().wait();
    if (engine_) engine_->stop();
    is_released_.set_value();
    thread_.join();
  }
  Neighbour(const Neighbour&) = delete;

  // Waits until it can be asked; throws what is wrong with it.
  api::ServedModel model() {
    is_waiting_ = false;
    return model_.get_future().get();
  }

 private:
  // Where it fails its requests are refused, and the other models go on.
  void run(ContinuousEngine& engine, const std::string& name) const {
    try {
      engine.run();
    } catch (const std::exception& e) {
      options_.output.text(fmt::format("weft: {} ended: {}", name, e.what()));
    }
  }

  EngineOptions options_;
  std::promise<api::ServedModel> model_;
  std::promise<void> is_released_;
  ContinuousEngine* engine_ = nullptr;
  bool is_waiting_ = true;
  std::thread thread_;
};

std::vector<api::ServedModel> with_neighbours(const api::ServedModel& first,
                                              const std::vector<std::unique_ptr<Neighbour>>& neighbours) {
  std::vector<api::ServedModel> all{first};
  for (const auto& one : neighbours) {
    all.push_back(one->model());
    for (size_t i = 0; i + 1 < all.size(); ++i)
      if (all[i].name == all.back().name) throw UsageError("two models are called {}", all[i].name);
  }
  return all;
}

// On the rank that speaks of the first model.
void serve_over_http(const Options& o, StopSignals& signals, ContinuousEngine& engine,
                     const std::vector<api::ServedModel>& models) {
  const Output& output = o.model.output;
  api::Api api(models, {.keys = o.key_file.empty() ? api::ApiKeys() : api::ApiKeys::load(o.key_file),
                        .only_local_hosts = http::is_loopback(o.server.host),
                        .limits = o.limits});
  http::Server server(o.server, api);
  std::thread stopper([&] {
    signals.wait();
    signals.let_through();
    api.begin_drain();
    output.text("weft: finishing what is under way; a second signal stops at once");
    const int64_t cut = server.drain(std::chrono::seconds(o.drain_seconds));
    for (const api::ServedModel& model : models) model.engine->drain(std::chrono::milliseconds(0));
    engine.stop();
    output.text(fmt::format("weft: stopped; {} answers were cut", cut));
  });
  api.set_ready();
  const std::string url =
      fmt::format("{}://{}:{}", o.server.tls_cert.empty() ? "http" : "https", o.server.host, server.port());
  for (const api::ServedModel& model : models)
    output.text(fmt::format("weft: serving {} at {}; {} tokens of context, {}", model.name, url,
                            model.engine->limits().context,
                            o.key_file.empty() ? "no key needed" : "a key is needed"));
  output.json({{"event", "ready"}, {"model", models.front().name}, {"url", url}, {"port", server.port()}});
  try {
    engine.run();
  } catch (...) {
    StopSignals::wake(stopper);
    stopper.join();
    throw;
  }
  stopper.join();
}

// What --model says, or the one MODEL.
std::vector<EngineOptions> all_models(const Options& o) {
  if (o.models.empty() == o.model.forward.model.empty())
    throw UsageError("serve: name one MODEL, or several as --model NAME=FOLDER");
  if (o.models.empty()) return {o.model};
  std::vector<EngineOptions> all;
  const int count = int(o.models.size());
  if (count > 1 && launched_by_mpi())
    throw UsageError("--model: where a launcher starts the ranks there is one model: start more servers");
  for (const std::string& text : o.models) {
    EngineOptions& one = all.emplace_back(o.model);
    std::tie(one.name, one.forward.model) = split_name("--model", text);
    one.num_models = count;
    if (one.forward.threads == 0 && count > 1) one.forward.threads = std::max(1, num_cores() / count);
    if (all.size() > 1)
      one.adapters.clear(), one.adapter_folder.clear(), one.draft.clear(), one.forward.adapter.clear();
  }
  return all;
}

void serve(const Options& o) {
  if (o.key_file.empty() && !http::is_loopback(o.server.host))
    throw UsageError("--host {} can be reached from other machines: name a file with keys with --api-key-file",
                     o.server.host);
  StopSignals signals;
  const std::vector<EngineOptions> models = all_models(o);
  run_engine(models.front(), [&](ContinuousEngine& engine, const api::ServedModel& first) {
    std::vector<std::unique_ptr<Neighbour>> neighbours;
    for (size_t i = 1; i < models.size(); ++i) neighbours.push_back(std::make_unique<Neighbour>(models[i]));
    serve_over_http(o, signals, engine, with_neighbours(first, neighbours));
  });
}

}  // namespace

void add_serve(CLI::App& program) {
  const auto o = std::make_shared<Options>();
  o->server.max_body_bytes = o->limits.json.max_bytes;
  CLI::App* c = program.add_subcommand("serve", "Serve models over HTTP, by the APIs of OpenAI and Anthropic");
  o->model.add_to(*c);
  c->get_option("MODEL")->required(false);
  c->add_option("--model", o->models,
                "NAME=FOLDER, several times: models behind one address, instead of MODEL; requests name theirs")
      ->allow_extra_args(false);
  c->add_option("--host", o->server.host, "The address to listen on; others than this machine's own need keys")
      ->capture_default_str();
  c->add_option("--port", o->server.port, "0: any that is free")->capture_default_str();
  c->add_option("--api-key-file", o->key_file, "Who may use it: a key a line; every route but /health needs one");
  c->add_option("--tls-cert", o->server.tls_cert, "A certificate in PEM form, with its chain");
  c->add_option("--tls-key", o->server.tls_key, "Its key in PEM form");
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
  c->footer("Example: weft serve Qwen3-0.6B --port 8000; then open http://127.0.0.1:8000/");
  c->callback([o] { serve(*o); });
}

}  // namespace weft::app
