// Handler and Exchange: what stands between connections and the API, so that each is written and tested without the
// other.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "weft/serve/http/message.h"

namespace weft::http {

// One request being answered. Every method may be called from any thread; after the client is gone they do nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Answers at once; the last call.
  virtual void reply(Reply reply) = 0;

  // Or piece by piece: the head, then bodies, then the end. A client that lets too much pile up is taken for gone.
  virtual void begin_stream(Reply head) = 0;
  virtual void write(std::string_view bytes) = 0;
  virtual void end_stream() = 0;

  // Runs `work` soon on a worker thread; of one exchange, one after the other and in order. Drops it once the answer
  // is complete or the client gone.
  virtual void post(std::function<void()> work) = 0;

  // `told` is called once, from any thread, when the client is gone before the end: at once if it is already. It must
  // be quick. It is dropped at the end of the answer.
  virtual void when_gone(std::function<void()> told) = 0;
};

class Handler {
 public:
  virtual ~Handler() = default;

  // By the head alone: what every reply to this request says beside its own, refusals of its body too. Quick.
  virtual Headers headers_of_replies(const Request&) const { return {}; }

  // By the head alone, on the network thread: an answer that needs neither body nor work, such as a refusal. Quick.
  virtual std::optional<Reply> answer_at_once(const Request& head) = 0;

  // On a worker thread. Never throws; answers now or later.
  virtual void handle(Request request, std::shared_ptr<Exchange> exchange) = 0;

  // A reply in the form of the API, for what never became a request. path: empty when no head was read.
  virtual Reply refusal(int status, std::string_view message, std::string_view path) = 0;
};

}  // namespace weft::http
