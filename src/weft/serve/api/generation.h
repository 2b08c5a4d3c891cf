// Generation: one request of the API while it is answered: some prompts, some answers to each, told in the form that
// the client's protocol has.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/serve/api/api_error.h"
#include "weft/serve/api/metrics.h"
#include "weft/serve/api/served_model.h"
#include "weft/serve/api/tool_calls.h"
#include "weft/serve/http/handler.h"
#include "weft/serve/stop_finder.h"
#include "weft/serve/text_stream.h"

namespace weft::api {

// What tokens are called: what is written of them, which several may share, or "token_id:17".
enum class TokenNames : uint8_t { texts, ids };

// What is to be done, as read from a request.
struct Plan {
  const ServedModel* model = nullptr;
  std::string model_name;  // as the client calls it
  std::string adapter;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<int64_t> second_texts;  // of each prompt, where the second of two texts begins; else none

  int64_t max_tokens = 16, min_tokens = 0;
  SamplingOptions sampling;
  std::vector<int32_t> stop_tokens;
  std::vector<std::vector<int32_t>> bad_words;
  std::optional<OutputForm> form;
  std::string form_key;  // of the request, which says it
  std::optional<int32_t> logprobs, prompt_logprobs;
  TokenNames token_names = TokenNames::texts;  // of logprobs
  int32_t priority = 0;
  std::string user;

  TextOptions text;
  StopOptions stops;  // of the content, where reasoning is told apart
  // What the model thinks is parsed out of the answers, which begin there.
  ReasoningPlace reasoning = ReasoningPlace::outside;
  bool tells_reasoning = true;  // to the client
  bool reads_tools = false;     // calls are parsed out of the answers
  std::shared_ptr<const ToolSchemas> tools = {};
  bool one_call = false;            // only the first of them is told
  std::string forced_beginning;     // of each answer; the prompts end with it
  int64_t n = 1, best_of = 1;       // for each prompt: how many answers are told, and made
  std::vector<std::string> echoes;  // of each prompt, what its answers begin with; else none
  bool stream = false;
  bool stream_usage = false;     // a last chunk tells the usage
  bool usage_in_chunks = false;  // and so does each before it, of its choice so far
  bool tells_token_ids = false;  // of prompts and answers
};

// A token with its log probability, and the alternatives.
struct TokenRecord {
  struct Entry {
    int32_t token = -1;
    std::string bytes;
    float log_prob = 0;
  };
  Entry own;
  bool is_known = false;  // of a prompt's first token nothing is
  int64_t rank = 0;
  std::vector<Entry> top;
};

struct NamedCall {
  std::string id;
  ToolCall call;
};

// What an answer grew by.
struct Piece {
  std::string reasoning;  // before the content
  std::string content;
  std::vector<NamedCall> calls;
  size_t first_call = 0;            // how many calls there were before
  std::vector<TokenRecord> tokens;  // with logprobs
  std::vector<int32_t> token_ids;   // where asked for, with the one that ends the answer
  bool empty() const {
    return reasoning.empty() && content.empty() && calls.empty() && tokens.empty() && token_ids.empty();
  }
};

// A stretch of an answer's reasoning, content or calls, up to `end` of these.
struct Stretch {
  enum class Of : uint8_t { reasoning, content, calls };
  Of of;
  size_t end;
};

struct Choice {
  int64_t index = 0, prompt = 0;
  std::string reasoning, content;
  std::vector<NamedCall> calls;
  std::vector<Stretch> order;                      // in which the model wrote these
  std::vector<TokenRecord> tokens, prompt_tokens;  // where asked for
  std::vector<int32_t> token_ids;                  // the same
  int64_t num_tokens = 0, num_reasoning_tokens = 0;
  FinishReason reason = FinishReason::stop;
  std::optional<std::string> stop;  // the stop string that ended it
  bool is_done = false;
  bool has_end_token = false;  // which is none of num_tokens, but was made
  double log_prob = 0;         // of all tokens, for best_of
  int64_t completion_tokens() const { return num_tokens + (has_end_token ? 1 : 0); }
  void add(const Piece& piece);
};

// What an answer is made of, in the order in which the model wrote it: a text, or a call.
struct AnswerPart {
  Stretch::Of of;
  std::string_view text;
  const NamedCall* call = nullptr;
};
std::vector<AnswerPart> parts_of(const Choice& choice);

// What a ReplyForm tells.
struct Progress {
  Plan plan;
  std::string id;  // without its prefix
  int64_t created = 0;
  std::vector<Choice> choices;  // of each prompt plan.n, at the end
  Usage usage;                  // all choices together
  int64_t reasoning_tokens = 0;
};

// Writes what happens in the form of one protocol; bodies of events are complete, with their empty line.
class ReplyForm {
 public:
  virtual ~ReplyForm() = default;
  virtual std::string begin(const Progress&) { return {}; }
  virtual std::string piece(const Progress& progress, const Choice& choice, const Piece& piece) = 0;
  virtual std::string finished(const Progress& progress, const Choice& choice) = 0;
  virtual std::string end(const Progress& progress) = 0;
  virtual std::string whole(const Progress& progress) = 0;  // without streaming: the reply's JSON
  virtual Dialect dialect() const { return Dialect::openai; }
};

// "data: JSON\n\n", with "event: NAME" before it when there is one.
std::string sse_event(const std::string& json, std::string_view name = {});
// Without dashes, of 128 random bits.
std::string random_id();

// Throws ApiError where the engine could never hold all answers of the plan at once, however idle it is.
void check_num_answers(const Plan& plan);

// Submits the plan's requests and answers as their tokens come. Throws ApiError, Busy and what Engine::submit throws,
// when nothing was answered yet.
void start_generation(Plan plan, std::unique_ptr<ReplyForm> form, std::shared_ptr<http::Exchange> exchange,
                      Metrics& metrics);

}  // namespace weft::api
