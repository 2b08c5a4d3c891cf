// Messages between the process that listens and the one where a replica's engine runs, and what they look like as
// bytes.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "weft/serve/api/served_model.h"
#include "weft/serve/engine.h"

namespace weft::remote {

// ---- to the replica ----

// A request without its constraint, which the replica makes from the form. `id` is the sender's.
struct Submit {
  RequestId id = 0;
  Request request;
  std::optional<api::OutputForm> form;
};
struct Cancel {
  RequestId id = 0;
};
struct LoadAdapter {
  uint64_t number = 0;  // of this question
  std::string name, folder;
};
struct UnloadAdapter {
  std::string name;
};
struct Drain {
  int64_t patience_ms = 0;
};
struct Stop {};
using ToReplica = std::variant<Submit, Cancel, LoadAdapter, UnloadAdapter, Drain, Stop>;

// ---- from the replica ----

struct Hello {  // the first
  EngineLimits limits;
  std::vector<std::string> adapters;
};
struct ScoredToken {  // TokenLogProbs with alternatives of its own
  TokenLogProb token;
  int64_t rank = 0;
  std::vector<TokenLogProb> top;
};
struct PromptScored {
  RequestId id = 0;
  std::vector<ScoredToken> tokens;
};
struct AnswerToken {
  int32_t token = 0;
  ScoredToken scored;
};
struct TokensCame {
  RequestId id = 0;
  std::vector<AnswerToken> tokens;
};
struct Embedded {
  RequestId id = 0;
  std::vector<float> vector;
};
struct Finished {
  RequestId id = 0;
  Finish finish;
};
struct AdapterLoaded {
  uint64_t number = 0;
  std::string error;
  std::vector<std::string> adapters;  // those there are now
};
struct StatsCame {
  EngineStats stats;
};
struct Ended {  // the engine has failed
  std::string error;
};
using FromReplica =
    std::variant<Hello, PromptScored, TokensCame, Embedded, Finished, AdapterLoaded, StatsCame, Ended>;

// Numbers are in this machine's byte order: both ends run one program. A constraint of a request is left out.
std::vector<std::byte> encode(const ToReplica& message);
std::vector<std::byte> encode(const FromReplica& message);
// Throw Error for bytes that are no message; memory is taken only for what the bytes hold.
ToReplica decode_to_replica(std::span<const std::byte> bytes);
FromReplica decode_from_replica(std::span<const std::byte> bytes);

}  // namespace weft::remote
