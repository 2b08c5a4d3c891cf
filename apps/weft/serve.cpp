// weft serve: one or several models behind the APIs of OpenAI and Anthropic.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <future>
#include <thread>

#include "engine_host.h"
#include "hosts.h"
#include "launched_replicas.h"
#include "rank_resources.h"
#include "weft/base/authority.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/serve/api/api.h"
#include "weft/serve/http/server.h"

namespace weft::app {
namespace {

struct ServeCommand {
  EngineOptions model;  // the first
  Hosts hosts;
  std::vector<std::string> models;  // "name=folder" of each, where they are named
  http::ServerOptions server;
  api::ApiLimits limits;
  std::string key_file;
  std::vector<std::string> allowed_origins;
  int drain_seconds = 30;
  int most_loaded = 0, idle_seconds = 0;
};

// SIGTERM, SIGINT and what --hosts makes of them, waited for on a thread of its own; a second one ends the program at
// once.
class StopSignals {
 public:
  StopSignals() {
    ::sigemptyset(&from_outside_);
    for (const int signal : {SIGTERM, SIGINT, kStopRanks}) ::sigaddset(&from_outside_, signal);
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

// What the thread that started it all waits for.
class Ending {
 public:
  void set() {
    if (!is_set_.exchange(true)) promise_.set_value();
  }
  void fail(const std::string& error) {
    if (!is_set_.exchange(true)) promise_.set_exception(std::make_exception_ptr(Error("{}", error)));
  }
  void wait() { promise_.get_future().get(); }

 private:
  std::atomic<bool> is_set_{false};
  std::promise<void> promise_;
};

// What clients meet, made before any model is read: reading takes long, and what is wrong here is told at once.
struct Front {
  explicit Front(const ServeCommand& o)
      : keys(o.key_file.empty() ? api::ApiKeys() : api::ApiKeys::load(o.key_file)),
        server(std::make_unique<http::Server>(o.server)) {}
  api::ApiKeys keys;
  std::unique_ptr<http::Server> server;
};

// `run` returns after `stop` was called, or throws why the server ends.
void serve_over_http(const ServeCommand& o, StopSignals& signals, Front front,
                     const std::vector<api::ServedModel>& models, const std::function<void()>& run,
                     const std::function<void()>& stop) {
  const Output& output = o.model.output;
  api::Api api(models, {.keys = front.keys,
                        .allowed_origins = o.allowed_origins,
                        .only_local_hosts = http::is_loopback(o.server.host),
                        .limits = o.limits});
  const std::unique_ptr<http::Server> server = std::move(front.server);  // ends before the API does
  server->listen(api);
  std::thread stopper([&] {
    signals.wait();
    signals.let_through();
    api.begin_drain();
    output.text("weft: finishing what is under way; a second signal stops at once");
    const int64_t cut = server->drain(std::chrono::seconds(o.drain_seconds));
    for (const api::ServedModel& model : models) model.engine->drain(std::chrono::milliseconds(0));
    stop();
    output.text(fmt::format("weft: stopped; {} answers were cut", cut));
  });
  api.set_ready();
  const std::string url =
      fmt::format("{}://{}", o.server.tls_cert.empty() ? "http" : "https", authority(o.server.host, server->port()));
  for (const api::ServedModel& model : models)
    output.text(fmt::format("weft: serving {} at {}; {} tokens of context, {}", model.name, url,
                            model.engine->limits().context,
                            o.key_file.empty() ? "no key needed" : "a key is needed"));
  output.json({{"event", "ready"}, {"model", models.front().name}, {"url", url}, {"port", server->port()}});
  try {
    run();
  } catch (...) {
    StopSignals::wake(stopper);
    stopper.join();
    throw;
  }
  stopper.join();
}

// What --model says, or the one MODEL.
std::vector<EngineOptions> all_models(const ServeCommand& o) {
  if (o.models.empty() == o.model.forward.model.empty())
    throw UsageError("serve: name one MODEL, or several as --model NAME=FOLDER");
  if (o.idle_seconds > 0 && o.most_loaded == 0)
    throw UsageError("--idle-seconds: say how many there may be with --max-loaded");
  if (o.models.empty() && o.most_loaded > 0)
    throw UsageError("--max-loaded: name the models with --model NAME=FOLDER");
  if (o.models.empty()) return {o.model};
  std::vector<EngineOptions> all;
  const int count = int(o.models.size());
  if ((count > 1 || o.most_loaded > 0) && launched_by_mpi())
    throw UsageError("--model: where a launcher starts the ranks there is one model: start more servers");
  for (const std::string& text : o.models) {
    EngineOptions& one = all.emplace_back(o.model);
    std::tie(one.name, one.forward.model) = split_name("--model", text);
    if (std::ranges::count(all, one.name, &EngineOptions::name) > 1)
      throw UsageError("--model: two models are called {}", one.name);
    one.num_models = o.most_loaded > 0 ? std::min(count, o.most_loaded) : count;
    if (one.forward.threads == 0) one.forward.threads = std::max(1, num_cores() / one.num_models);
    if (all.size() > 1)
      one.adapters.clear(), one.adapter_folder.clear(), one.draft.clear(), one.forward.adapter.clear();
  }
  return all;
}

// What talking with a model takes, found before its weights are read.
struct OpenedText {
  explicit OpenedText(const EngineOptions& model)
      : source(open_model(model.forward.model, Checkpoint::Check::sizes)), text(model, *source) {}
  const std::unique_ptr<ModelSource> source;
  ModelText text;
};

// The ranks are processes: this one's is served on this thread. The first replica's speaker listens for all of them.
void serve_launched(const ServeCommand& o, StopSignals& signals, EngineOptions model) {
  OpenedText opened(model);
  model.forward.replicas = replicas_of(model.forward);
  run_engine(model, [&](Speaker& speaker) {
    if (speaker.place.replica > 0) return serve_replica(speaker, opened.text.served_by(speaker.engine).constraints);
    LaunchedReplicas replicas(speaker, [&](const std::string& line) { o.model.output.text("weft: " + line); });
    serve_over_http(
        o, signals, Front(o), {opened.text.served_by(replicas.engine())}, [&] { replicas.run(); },
        [&] { replicas.stop(); });
  });
}

// All models from the start to the end. When the first fails the server ends; where another one does, its requests
// are refused and the others go on.
void serve_all(const ServeCommand& o, StopSignals& signals, const std::vector<EngineOptions>& models) {
  Front front(o);
  Ending ending;
  std::vector<std::unique_ptr<HostedModel>> hosted;
  std::vector<std::unique_ptr<OpenedText>> opened;
  std::vector<api::ServedModel> served;
  for (const EngineOptions& model : models) opened.push_back(std::make_unique<OpenedText>(model));
  for (const EngineOptions& model : models) {
    const auto on_failure = [&o, &ending, &model, is_first = hosted.empty()](const std::string& error) {
      if (is_first) return ending.fail(error);
      o.model.output.text(fmt::format("weft: {} ended: {}", model.name, error));
    };
    hosted.push_back(std::make_unique<HostedModel>(model, on_failure));
    served.push_back(opened[served.size()]->text.served_by(hosted.back()->engine()));
  }
  serve_over_http(
      o, signals, std::move(front), served, [&] { ending.wait(); }, [&] { ending.set(); });
}

std::vector<std::string> adapter_names(const EngineOptions& model) {
  std::vector<std::string> names;
  for (const std::string& text : model.adapters) names.push_back(split_name("--lora", text).first);
  return names;
}

// Models that come when a request names them.
void serve_on_demand(const ServeCommand& o, StopSignals& signals, const std::vector<EngineOptions>& models) {
  Front front(o);
  const Output& output = o.model.output;
  const auto log = [&](const std::string& line) { output.text("weft: " + line); };
  std::vector<std::unique_ptr<OpenedText>> opened;
  std::vector<api::ServedModel> served;
  EnginePool pool(
      {.most_loaded = size_t(o.most_loaded), .most_idle = std::chrono::seconds(o.idle_seconds), .log = log});
  for (const EngineOptions& model : models) {
    if (!model.adapter_folder.empty())
      throw UsageError("--lora-dir and --max-loaded exclude each other: name adapters with --lora");
    opened.push_back(std::make_unique<OpenedText>(model));
    const ModelSource& source = *opened.back()->source;
    const int replicas = replicas_of(model.forward);
    const EngineLimits limits{.vocab = source.config().vocab,
                              .context = source.config().context,
                              .max_running = model.engine.max_running * replicas,
                              .max_waiting = model.engine.max_waiting * replicas};
    const auto load = [&model, log] {
      const auto on_failure = [&model, log](const std::string& error) { log(model.name + " ended: " + error); };
      return std::make_unique<HostedModel>(model, on_failure);
    };
    served.push_back(opened.back()->text.served_by(pool.add(model.name, limits, adapter_names(model), load)));
  }
  Ending ending;
  serve_over_http(
      o, signals, std::move(front), served, [&] { ending.wait(); }, [&] { ending.set(); });
}

void serve_on_hosts(const ServeCommand& o, const std::vector<EngineOptions>& models) {
  const ForwardOptions& forward = models.front().forward;
  if (models.size() > 1 || o.most_loaded > 0)
    throw UsageError("--hosts: ranks on several machines serve one model: start more servers");
  if (forward.mesh == "auto") throw UsageError("--hosts: write the mesh, as in --mesh dp=2,tp=4");
  o.hosts.run_own_command(ranks_of(forward));
}

// A scheme and a host in small letters, a port that is not the scheme's own, and no path, not even a slash.
// Source: RFC 6454, section 6.2.
bool is_as_browsers_write(const std::string& origin) {
  const size_t host = origin.find("://");
  if (host == std::string::npos || host == 0 || host + 3 == origin.size()) return false;
  return origin.find_first_of(" *ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string::npos &&
         origin.find('/', host + 3) == std::string::npos &&
         !(origin.starts_with("http:") && origin.ends_with(":80")) &&
         !(origin.starts_with("https:") && origin.ends_with(":443"));
}

void check_origin(const std::string& origin) {
  if (origin == "*" || is_as_browsers_write(origin)) return;
  throw UsageError(
      "--allowed-origins: write '{}' as a browser does, in small letters and without a path or the scheme's own "
      "port, as https://chat.example.org or http://localhost:3000, or * for all sites",
      origin);
}

void serve(const ServeCommand& o) {
  if (o.key_file.empty() && !http::is_loopback(o.server.host))
    throw UsageError("--host {} can be reached from other machines: name a file with keys with --api-key-file",
                     o.server.host);
  for (const std::string& origin : o.allowed_origins) check_origin(origin);
  const std::vector<EngineOptions> models = all_models(o);
  if (o.hosts.are_given()) return serve_on_hosts(o, models);
  StopSignals signals;
  if (launched_by_mpi()) return serve_launched(o, signals, models.front());
  if (o.most_loaded > 0) return serve_on_demand(o, signals, models);
  serve_all(o, signals, models);
}

}  // namespace

void add_serve(CLI::App& program) {
  const auto o = std::make_shared<ServeCommand>();
  o->server.max_body_bytes = o->limits.json.max_bytes;
  CLI::App* c = program.add_subcommand("serve", "Serve models over HTTP, by the APIs of OpenAI and Anthropic");
  o->model.add_to(*c);
  c->get_option("MODEL")->required(false);
  o->hosts.add_to(*c);
  c->add_option("--model", o->models,
                "NAME=FOLDER, several times: models behind one address, instead of MODEL; requests name theirs")
      ->allow_extra_args(false);
  c->add_option(
       "--max-loaded", o->most_loaded,
       "So many of the named models at once: each comes when it is asked for, and the longest unused leaves; "
       "0: all, from the start")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 10));
  c->add_option("--idle-seconds", o->idle_seconds,
                "With --max-loaded: a model that nobody asked for so long leaves; 0: when its room is needed")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 30));
  c->add_option("--host", o->server.host, "The address to listen on; others than this machine's own need keys")
      ->capture_default_str();
  c->add_option("--port", o->server.port, "0: any that is free")->capture_default_str();
  c->add_option("--api-key-file", o->key_file, "Who may use it: a key a line; every route but /health needs one");
  c->add_option("--allowed-origins", o->allowed_origins,
                "Sites whose pages may send requests from a browser, separated by commas, as http://localhost:3000; "
                "*: all; without it the server's own page alone")
      ->delimiter(',');
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
