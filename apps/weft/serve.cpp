// weft serve: one or several models behind the APIs of OpenAI and Anthropic.
#include <algorithm>
#include <atomic>
#include <future>

#include "engine_host.h"
#include "front.h"
#include "hosts.h"
#include "launched_replicas.h"
#include "rank_resources.h"
#include "weft/comm/mpi/mpi.h"

namespace weft::app {
namespace {

struct ServeCommand {
  EngineOptions model;  // the first
  Hosts hosts;
  std::vector<std::string> models;  // "name=folder" of each, where they are named
  FrontOptions front;
  int most_loaded = 0, idle_seconds = 0;
};

// What the thread that started it all waits for.
class Ending {
 public:
  void set() {
    if (!is_set_.exchange(true)) promise_.set_value();
  }
  // False where the end was set before.
  bool fail(const std::string& error) {
    if (is_set_.exchange(true)) return false;
    promise_.set_exception(std::make_exception_ptr(Error("{}", error)));
    return true;
  }
  void wait() { promise_.get_future().get(); }

 private:
  std::atomic<bool> is_set_{false};
  std::promise<void> promise_;
};

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
    if (one.forward.threads == 0) one.forward.threads = std::max(1, usable_cores() / one.num_models);
    if (all.size() > 1)
      one.adapters.clear(), one.adapter_folder.clear(), one.draft.clear(), one.forward.adapter.clear();
  }
  return all;
}

// What talking with a model takes, found before its weights are read.
class OpenedText {
 public:
  explicit OpenedText(const EngineOptions& model)
      : encoder_(is_text_encoder(model.forward.model) ? std::make_unique<TextEncoderSource>(model.forward.model)
                                                      : nullptr),
        source_(encoder_ ? nullptr : open_model(model.forward.model, Checkpoint::Check::sizes)),
        text_(encoder_ ? ModelText(model, *encoder_) : ModelText(model, *source_)) {}

  api::ServedModel served_by(Engine& engine) { return text_.served_by(engine); }
  // Of an engine that is not there yet.
  EngineLimits limits(const EngineOptions& model) const {
    const int replicas = replicas_of(model.forward);
    EngineLimits limits{.max_running = model.engine.max_running * replicas,
                        .max_waiting = model.engine.max_waiting * replicas};
    if (encoder_) {
      limits.is_encoder = true;
      limits.vocab = encoder_->config().vocab, limits.context = encoder_->context();
      limits.labels = encoder_->config().labels;
    } else {
      const ModelConfig& config = source_->config();
      limits.vocab = config.vocab, limits.context = config.context, limits.labels = config.labels;
      limits.is_encoder = config.bidirectional;
    }
    return limits;
  }

 private:
  const std::unique_ptr<TextEncoderSource> encoder_;  // or
  const std::unique_ptr<ModelSource> source_;
  ModelText text_;
};

// The ranks are processes: this one's is served on this thread. The first replica's driver listens for all of them.
void serve_launched(const ServeCommand& o, const StopSignals& signals, EngineOptions model) {
  OpenedText opened(model);
  model.forward.replicas = replicas_of(model.forward);
  run_engine(model, [&](Driver& driver) {
    if (driver.place.replica > 0) return serve_replica(driver, opened.served_by(driver.engine).constraints);
    LaunchedReplicas replicas(driver, [&](const std::string& line) { o.model.output.text("weft: " + line); });
    Front front(o.front, o.model.output, signals);
    front.serve(
        {opened.served_by(replicas.engine())}, [&] { replicas.run(); }, [&] { replicas.stop(); });
  });
}

// All models from the start to the end. When the first fails the server ends; where another one does, its requests
// are refused and the others go on.
void serve_all(const ServeCommand& o, const StopSignals& signals, const std::vector<EngineOptions>& models) {
  Front front(o.front, o.model.output, signals);
  Ending ending;
  std::vector<std::unique_ptr<HostedModel>> hosted;
  std::vector<std::unique_ptr<OpenedText>> opened;
  std::vector<api::ServedModel> served;
  for (const EngineOptions& model : models) opened.push_back(std::make_unique<OpenedText>(model));
  for (const EngineOptions& model : models) {
    const auto on_failure = [&o, &ending, &model, is_first = hosted.empty()](const std::string& error) {
      if (is_first && ending.fail(error)) return;
      o.model.output.text(fmt::format("weft: {} ended: {}", model.name, error));
    };
    hosted.push_back(std::make_unique<HostedModel>(model, on_failure));
    served.push_back(opened[served.size()]->served_by(hosted.back()->engine()));
  }
  front.serve(
      served, [&] { ending.wait(); }, [&] { ending.set(); });
}

std::vector<std::string> adapter_names(const EngineOptions& model) {
  std::vector<std::string> names;
  for (const std::string& text : model.adapters) names.push_back(split_name("--lora", text).first);
  return names;
}

// Models that come when a request names them.
void serve_on_demand(const ServeCommand& o, const StopSignals& signals, const std::vector<EngineOptions>& models) {
  Front front(o.front, o.model.output, signals);
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
    const auto load = [&model, log] {
      const auto on_failure = [&model, log](const std::string& error) { log(model.name + " ended: " + error); };
      return std::make_unique<HostedModel>(model, on_failure);
    };
    served.push_back(
        opened.back()->served_by(pool.add(model.name, opened.back()->limits(model), adapter_names(model), load)));
  }
  Ending ending;
  front.serve(
      served, [&] { ending.wait(); }, [&] { ending.set(); });
}

void serve_on_hosts(const ServeCommand& o, const std::vector<EngineOptions>& models) {
  const ForwardOptions& forward = models.front().forward;
  if (models.size() > 1 || o.most_loaded > 0)
    throw UsageError("--hosts: ranks on several machines serve one model: start more servers");
  if (forward.mesh == "auto") throw UsageError("--hosts: write the mesh, as in --mesh dp=2,tp=4");
  o.hosts.run_own_command(ranks_of(forward));
}

void serve(const ServeCommand& o) {
  o.front.check();
  const std::vector<EngineOptions> models = all_models(o);
  if (o.hosts.are_given()) return serve_on_hosts(o, models);
  const StopSignals signals;
  if (launched_by_mpi()) return serve_launched(o, signals, models.front());
  if (o.most_loaded > 0) return serve_on_demand(o, signals, models);
  serve_all(o, signals, models);
}

}  // namespace

void add_serve(CLI::App& program) {
  const auto o = std::make_shared<ServeCommand>();
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
  o->front.add_to(*c);
  c->footer("Example: weft serve Qwen3-0.6B --port 8000; then open http://127.0.0.1:8000/");
  c->callback([o] { serve(*o); });
}

}  // namespace weft::app
