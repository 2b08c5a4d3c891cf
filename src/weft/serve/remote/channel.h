// Channel: whole messages both ways over a connected socket, between two threads or processes that trust each other.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace weft::remote {

// A socket that is closed with its owner; -1: none.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// A message is its length in 4 bytes and then its bytes. One thread receives; any may send.
class Channel {
 public:
  static constexpr size_t kMostBytes = size_t(64) << 20;  // of a message
  static constexpr size_t kMostQueued = size_t(1) << 28;  // bytes that the other end has not taken

  // What `news` returns is sent too, before the messages that go out at once; it is called by a thread of this.
  using News = std::function<std::vector<std::byte>()>;
  explicit Channel(Socket socket, News news = {});
  ~Channel();  // what was not sent is lost
  Channel(const Channel&) = delete;

  // Returns at once. What is sent after the connection broke is lost: receive tells of it. Throws Error for a message
  // that is too long.
  void send(std::span<const std::byte> message);
  // Sleeps until a message is there. False when the other end has finished. Throws Error when the connection broke.
  bool receive(std::vector<std::byte>& message);
  // Sends what there is and says that nothing more comes; waits some seconds for that at most.
  void finish();
  // Ends receive, here and at the other end.
  void cut() noexcept;

 private:
  bool receive_exactly(std::byte* to, size_t size);
  void write();
  bool write(std::span<const std::byte> bytes);

  const Socket socket_;
  const News news_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::byte> queued_;
  bool is_finishing_ = false, is_broken_ = false, is_written_ = false;
  std::thread writer_;
};

}  // namespace weft::remote
