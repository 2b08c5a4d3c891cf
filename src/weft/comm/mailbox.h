// Mailbox: the messages that threads of one process have sent to one rank and that it has not yet received.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "weft/base/function_ref.h"
#include "weft/comm/collective.h"
#include "weft/comm/signal.h"

namespace weft {

// Messages match by (sender, tag), in the order in which they were sent. Their memory is kept for later ones.
class Mailbox {
 public:
  void put(int from, const Collective& send);

  // Copies the message into recv.out. Calls before_sleep(), which may throw, while there is none.
  // `spins`: as of Signal::wait. Throws Error when the message has another size or dtype than `recv`.
  void take(int rank, const Collective& recv, bool spins, FunctionRef<std::chrono::nanoseconds()> before_sleep);

  void wake() { signal_.raise(); }

 private:
  struct Message {
    int from = 0;
    Collective send;
    std::vector<std::byte> payload;
  };
  std::unique_ptr<Message> find_free(size_t bytes);
  std::unique_ptr<Message> find(int from, int tag);

  std::mutex mutex_;
  Signal signal_;
  std::vector<std::unique_ptr<Message>> waiting_, free_;
};

}  // namespace weft
