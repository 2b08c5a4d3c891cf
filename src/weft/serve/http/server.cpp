// Server: one thread for the network, a few that answer.
#include "weft/serve/http/server.h"

#include "weft/serve/http/connection.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <condition_variable>
#include <list>
#include <thread>

#include "weft/base/error.h"

namespace weft::http {
namespace {

using asio::ip::tcp;

class Workers : public WorkQueue {
 public:
  explicit Workers(int threads) : pool_(size_t(std::max(threads, 1))) {}
  ~Workers() override { stop(); }
  Strand make_strand() override {
    return [strand = asio::make_strand(pool_.get_executor())](std::function<void()> work) {
      asio::post(strand, std::move(work));
    };
  }
  void stop() {
    pool_.stop();
    pool_.join();
  }

 private:
  asio::thread_pool pool_;
};

tcp::endpoint endpoint_of(const ServerOptions& options) {
  error_code error;
  const auto address = asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, error);
  if (error)
    throw UsageError("--host {}: write an address of this machine, such as 127.0.0.1 or 0.0.0.0", options.host);
  return {address, options.port};
}

std::unique_ptr<asio::ssl::context> tls_context_of(const ServerOptions& options) {
  if (options.tls_cert.empty() && options.tls_key.empty()) return nullptr;
  if (options.tls_cert.empty() || options.tls_key.empty())
    throw UsageError("TLS needs both --tls-cert and --tls-key");
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  context->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                       asio::ssl::context::no_tlsv1_1);
  error_code error;
  context->use_certificate_chain_file(options.tls_cert, error);
  if (error) throw UsageError("--tls-cert {}: this is no readable certificate in PEM form", options.tls_cert);
  context->use_private_key_file(options.tls_key, asio::ssl::context::pem, error);
  if (error)
    throw UsageError("--tls-key {}: this is no readable key in PEM form of that certificate", options.tls_key);
  return context;
}

}  // namespace

class Server::Impl {
 public:
  explicit Impl(const ServerOptions& options)
      : options_(options),
        tls_(tls_context_of(options_)),
        workers_(options_.workers),
        shared_{options_, workers_},
        acceptor_(network_),
        pause_(network_) {
    const tcp::endpoint endpoint = endpoint_of(options_);
    error_code error;
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    check_address(error);
    port_ = acceptor_.local_endpoint().port();
  }

  void listen(Handler& handler) {
    error_code error;
    acceptor_.listen(asio::socket_base::max_listen_connections, error);
    check_address(error);
    shared_.handler = &handler;
    accept();
    thread_ = std::thread([this] { network_.run(); });
  }

  ~Impl() {
    asio::post(network_, [this] {
      stop_accepting();
      for_each_connection([](AnyConnection& connection) { connection.close(); });
    });
    // Coroutines end by themselves once their sockets are closed; what workers still hold is let go first.
    workers_.stop();
    work_.reset();
    if (thread_.joinable()) thread_.join();
  }

  uint16_t port() const { return port_; }

  ServerStats stats() const { return {shared_.connections, shared_.exchanges, shared_.body_bytes}; }

  int64_t drain(std::chrono::milliseconds patience, const std::function<void()>& cut) {
    asio::post(network_, [this] {
      shared_.is_draining = true;
      stop_accepting();
      for_each_connection([](AnyConnection& connection) { connection.close_if_idle(); });
    });
    wait_for_end(patience);
    const int64_t num_cut = shared_.exchanges;
    if (num_cut > 0 && cut) {
      constexpr std::chrono::seconds kLastWords{1};
      cut();
      wait_for_end(kLastWords);
    }
    asio::post(network_, [this] { for_each_connection([](AnyConnection& connection) { connection.close(); }); });
    return num_cut;
  }

 private:
  // Of a drain: until nobody is connected, or for `patience`.
  void wait_for_end(std::chrono::milliseconds patience) const {
    const auto deadline = Clock::now() + patience;
    constexpr std::chrono::milliseconds kLook{10};
    do {
      std::this_thread::sleep_for(kLook);
    } while ((shared_.connections > 0 || !shared_.is_draining) && Clock::now() < deadline);
  }
  void check_address(const error_code& error) const {
    if (error)
      throw UsageError("cannot listen on {} port {}: {}; choose another with --host and --port", options_.host,
                       options_.port, error.message());
  }
  void stop_accepting() {
    error_code ignored;
    acceptor_.close(ignored);
    is_accepting_ = false;
    pause_.cancel();
  }

  void accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (!is_accepting_) return;
      if (error) return wait_and_accept();  // out of descriptors, perhaps: some will come back
      // Beyond the limit a connection is closed at once: that costs nothing, and the client sees it.
      if (shared_.connections < options_.max_connections) begin(std::move(socket));
      accept();
    });
  }
  void wait_and_accept() {
    constexpr std::chrono::milliseconds kPause{50};
    pause_.expires_after(kPause);
    pause_.async_wait([this](error_code) {
      if (is_accepting_) accept();
    });
  }

  void begin(tcp::socket socket) {
    if (tls_)
      add(std::make_shared<Connection<TlsStream>>(TlsStream(std::move(socket), *tls_), shared_));
    else
      add(std::make_shared<Connection<PlainStream>>(std::move(socket), shared_));
  }
  template <class C>
  void add(std::shared_ptr<C> connection) {
    connections_.remove_if([this](const auto& weak) { return connections_.size() > 64 && weak.expired(); });
    connections_.push_back(connection);
    connection->start();
  }
  template <class F>
  void for_each_connection(F visit) {
    for (const auto& weak : connections_) {
      if (const auto connection = weak.lock()) visit(*connection);
    }
  }

  const ServerOptions options_;
  const std::unique_ptr<asio::ssl::context> tls_;
  Workers workers_;
  Shared shared_;
  asio::io_context network_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(network_);
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  uint16_t port_ = 0;
  bool is_accepting_ = true;
  std::list<std::weak_ptr<AnyConnection>> connections_;
  std::thread thread_;
};

Server::Server(const ServerOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Server::~Server() = default;
void Server::listen(Handler& handler) { impl_->listen(handler); }
uint16_t Server::port() const { return impl_->port(); }
ServerStats Server::stats() const { return impl_->stats(); }
int64_t Server::drain(std::chrono::milliseconds patience, const std::function<void()>& cut) {
  return impl_->drain(patience, cut);
}

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  error_code error;
  const auto address = asio::ip::make_address(host, error);
  return !error && address.is_loopback();
}

}  // namespace weft::http
