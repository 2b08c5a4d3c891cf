// Front: a thread waits for the signal to stop while another one serves.
#include "front.h"

#include "weft/base/authority.h"

namespace weft::app {
namespace {

api::ApiKeys keys_of(const FrontOptions& o) {
  return o.key_file.empty() ? api::ApiKeys() : api::ApiKeys::load(o.key_file);
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

}  // namespace

void FrontOptions::add_to(CLI::App& command) {
  command.add_option("--host", server.host, "The address to listen on; others than this machine's own need keys")
      ->capture_default_str();
  command.add_option("--port", server.port, "0: any that is free")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  command.add_option("--api-key-file", key_file, "Who may use it: a key a line; every route but /health needs one");
  command
      .add_option(
          "--allowed-origins", allowed_origins,
          "Sites whose pages may send requests from a browser, separated by commas, as http://localhost:3000; "
          "*: all; without it the server's own page alone")
      ->delimiter(',');
  command.add_option("--tls-cert", server.tls_cert, "A certificate in PEM form, with its chain");
  command.add_option("--tls-key", server.tls_key, "Its key in PEM form");
  command.add_option("--max-connections", server.max_connections, "More are closed at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command.add_option("--max-n", limits.n, "Answers that a request may ask for to each prompt")
      ->capture_default_str()
      ->check(CLI::Range(1, 128));
  command.add_option("--http-threads", server.workers, "Threads that read requests and write answers")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  command.add_option("--drain-seconds", drain_seconds, "How long answers under way may take after SIGTERM")
      ->capture_default_str()
      ->check(CLI::Range(0, 86400));
}

void FrontOptions::check() const {
  if (key_file.empty() && !http::is_loopback(server.host))
    throw UsageError("--host {} can be reached from other machines: name a file with keys with --api-key-file",
                     server.host);
  for (const std::string& origin : allowed_origins) check_origin(origin);
}

Front::Front(const FrontOptions& options, const Output& output, const StopSignals& signals)
    : options_(options),
      output_(output),
      signals_(signals),
      api_({.keys = keys_of(options),
            .allowed_origins = options.allowed_origins,
            .only_local_hosts = http::is_loopback(options.server.host),
            .limits = options.limits}),
      server_(std::make_unique<http::Server>(options.server)) {
  server_->listen(api_);
  output_.json({{"event", "listening"}, {"url", url()}, {"port", server_->port()}});
  stopper_ = std::thread([this] { wait_for_signal(); });
}

Front::~Front() {
  if (!stopper_.joinable()) return;
  StopSignals::wake(stopper_);
  stopper_.join();
}

std::string Front::url() const {
  return fmt::format("{}://{}", options_.server.tls_cert.empty() ? "http" : "https",
                     authority(options_.server.host, server_->port()));
}

void Front::wait_for_signal() {
  const int signal = signals_.wait();
  if (signal == 0) return;
  if (!is_serving_) StopSignals::end_program_by(signal);
  signals_.let_through();
  drain();
}

void Front::drain() {
  api_.begin_drain();
  output_.text("weft: finishing what is under way; a second signal stops at once");
  const auto cancel = [this] {
    for (const api::ServedModel& model : models_) model.engine->drain(std::chrono::milliseconds(0));
  };
  const int64_t cut = server_->drain(std::chrono::seconds(options_.drain_seconds), cancel);
  cancel();
  stop_();
  output_.text(fmt::format("weft: stopped; {} answers were cut", cut));
  has_drained_ = true;
}

void Front::serve(const std::vector<api::ServedModel>& models, const std::function<void()>& run,
                  const std::function<void()>& stop) {
  models_ = models;
  stop_ = stop;
  api_.serve(models);
  is_serving_ = true;
  for (const api::ServedModel& model : models)
    output_.text(fmt::format("weft: serving {} at {}; {} tokens of context, {}", model.name, url(),
                             model.engine->limits().context,
                             options_.key_file.empty() ? "no key needed" : "a key is needed"));
  for (const api::ServedModel& model : models) {
    if (model.embedding == EmbeddingRule()) continue;
    output_.text(fmt::format("weft: {}: {}", model.name, to_text(model.embedding)));
    output_.json({{"event", "embedding_rule"},
                  {"model", model.name},
                  {"pooling", name_of(model.embedding.pooling)},
                  {"normalises", model.embedding.normalises},
                  {"unknown", model.embedding.unknown}});
  }
  for (const api::ServedModel& model : models) {
    if (model.sampling.is_empty()) continue;
    output_.text(fmt::format("weft: {}: where a request says nothing, as the model's files say: {}", model.name,
                             to_text(model.sampling)));
    nlohmann::json event{{"event", "sampling_defaults"}, {"model", model.name}};
    write_sampling_defaults(event, model.sampling);
    output_.json(event);
  }
  output_.json({{"event", "ready"}, {"model", models.front().name}, {"url", url()}, {"port", server_->port()}});
  std::exception_ptr failure;
  try {
    run();
  } catch (...) {
    failure = std::current_exception();
    StopSignals::wake(stopper_);
  }
  stopper_.join();
  if (!has_drained_) drain();
  server_.reset();  // what it asked is still there
  if (failure) std::rethrow_exception(failure);
}

}  // namespace weft::app
