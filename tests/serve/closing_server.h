// ClosingServer: a server that gives every connection the same answer, and closes it without saying so.
#pragma once
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "weft/serve/remote/address.h"

namespace weft::bench {

class ClosingServer {
 public:
  explicit ClosingServer(std::string every_answer) : answer_(std::move(every_answer)) {
    thread_ = std::thread([this] {
      for (int peer; (peer = ::accept(listener_.fd(), nullptr, nullptr)) >= 0; ::close(peer))
        ++connections, answer(peer);
    });
  }
  ~ClosingServer() {
    ::shutdown(listener_.fd(), SHUT_RDWR);
    thread_.join();
  }
  uint16_t port() const { return uint16_t(port_); }
  std::atomic<int> connections = 0;

 private:
  void answer(int peer) const {
    char request[4096];
    if (::recv(peer, request, sizeof request, 0) <= 0) return;
    for (size_t sent = 0; sent < answer_.size();) {
      const ssize_t n = ::send(peer, answer_.data() + sent, answer_.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;  // the client has left
      sent += size_t(n);
    }
  }
  const std::string answer_;
  uint32_t port_ = 0;
  const remote::Socket listener_ = remote::listen_at(remote::Address::loopback(), 8, port_);
  std::thread thread_;
};

}  // namespace weft::bench
