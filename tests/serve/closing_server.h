// ClosingServer: a server that gives every connection the same answer, and closes it without saying so.
#pragma once
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "weft/base/error.h"

namespace weft::bench {

class ClosingServer {
 public:
  explicit ClosingServer(std::string every_answer) : answer_(std::move(every_answer)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    check(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size) == 0 && ::listen(fd_, 8) == 0 &&
              ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0,
          "no port");
    port = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      for (int peer; (peer = ::accept(fd_, nullptr, nullptr)) >= 0; ::close(peer)) ++connections, answer(peer);
    });
  }
  ~ClosingServer() {
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }
  uint16_t port = 0;
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
  const int fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::thread thread_;
};

}  // namespace weft::bench
