// Channel: a queue that a thread of its own writes to the socket.
#include "weft/serve/remote/channel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "weft/base/error.h"

namespace weft::remote {
namespace {

constexpr std::chrono::seconds kPatienceToFinish{10};

void append_message(std::vector<std::byte>& to, std::span<const std::byte> message) {
  const auto size = uint32_t(message.size());
  const auto* const head = reinterpret_cast<const std::byte*>(&size);
  to.insert(to.end(), head, head + sizeof size);
  to.insert(to.end(), message.begin(), message.end());
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}
Socket::Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Channel::Channel(Socket socket, News news)
    : socket_(std::move(socket)), news_(std::move(news)), writer_([this] { write(); }) {
  const int on = 1;
  ::setsockopt(socket_.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Channel::~Channel() {
  cut();
  {
    const std::lock_guard lock(mutex_);
    is_finishing_ = true;
    queued_.clear();
  }
  changed_.notify_all();
  writer_.join();
}

void Channel::send(std::span<const std::byte> message) {
  if (message.size() > kMostBytes)
    throw Error("a message of {} bytes to another replica: {} are allowed", message.size(), kMostBytes);
  {
    const std::lock_guard lock(mutex_);
    if (is_broken_) return;
    if (queued_.size() + message.size() > kMostQueued) {  // the other end is stuck
      is_broken_ = true;
      return cut();
    }
    append_message(queued_, message);
  }
  changed_.notify_all();
}

bool Channel::receive(std::vector<std::byte>& message) {
  uint32_t size = 0;
  if (!receive_exactly(reinterpret_cast<std::byte*>(&size), sizeof size)) return false;
  if (size > kMostBytes) throw Error("a message of {} bytes from another replica: {} are allowed", size, kMostBytes);
  message.resize(size);
  if (!receive_exactly(message.data(), size)) throw Error("the connection was cut in the middle of a message");
  return true;
}

// False when there is not a single byte any more.
bool Channel::receive_exactly(std::byte* to, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::recv(socket_.fd(), to + done, size - done, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error("the connection broke: {}", std::strerror(errno));
    if (n == 0 && done == 0) return false;
    if (n == 0) throw Error("the connection was cut in the middle of a message");
    done += size_t(n);
  }
  return true;
}

bool Channel::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(size_t(n));
  }
  return true;
}

void Channel::write() {
  std::vector<std::byte> bytes, news;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_finishing_ || !queued_.empty(); });
    if (queued_.empty()) break;
    bytes.clear(), news.clear();
    bytes.swap(queued_);
    lock.unlock();
    if (news_) append_message(news, news_());
    const bool is_sent = write(news) && write(bytes);
    lock.lock();
    if (is_sent) continue;
    is_broken_ = true;
    queued_.clear();
    cut();
  }
  ::shutdown(socket_.fd(), SHUT_WR);
  is_written_ = true;
  changed_.notify_all();
}

void Channel::finish() {
  std::unique_lock lock(mutex_);
  is_finishing_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kPatienceToFinish, [&] { return is_written_; });
}

void Channel::cut() noexcept { ::shutdown(socket_.fd(), SHUT_RDWR); }

}  // namespace weft::remote
