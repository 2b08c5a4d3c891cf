// Messages as bytes. One function names the fields of a struct for both directions; it does not compile when the
// struct has another number of them.
#include "weft/serve/remote/messages.h"

#include <cstring>
#include <type_traits>

namespace weft::remote {
namespace {

template <class E>
constexpr E last_of() = delete;
template <>
constexpr Request::Kind last_of() {
  return Request::Kind::weigh;
}
template <>
constexpr Pooling last_of() {
  return Pooling::weighted_mean;
}
template <>
constexpr FinishReason last_of() {
  return FinishReason::error;
}
template <>
constexpr api::OutputForm::Kind last_of() {
  return api::OutputForm::Kind::tool_calls;
}
template <>
constexpr api::ToolFormat last_of() {
  return api::ToolFormat::llama;
}
template <>
constexpr api::ReasoningFormat last_of() {
  return api::ReasoningFormat::think;
}
template <>
constexpr api::ReasoningPlace last_of() {
  return api::ReasoningPlace::inside;
}

template <class T>
constexpr bool kIsNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

// Writes fields one after the other.
class FieldWriter {
 public:
  template <class T>
  using Of = const T;

  template <class... T>
  void operator()(const T&... fields) {
    (put(fields), ...);
  }
  void put_index(size_t index) { put(uint8_t(index)); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  template <class T>
  void put(const T& x) {
    if constexpr (kIsNumber<T>) {
      append(&x, sizeof x);
    } else if constexpr (std::is_same_v<T, bool> || std::is_enum_v<T>) {
      put(uint8_t(x));
    } else {
      name_fields(*this, x);
    }
  }
  template <class T>
  void put(const std::vector<T>& all) {
    put(uint32_t(all.size()));
    if constexpr (kIsNumber<T>) {
      append(all.data(), all.size() * sizeof(T));
    } else {
      for (const T& one : all) put(one);
    }
  }
  void put(const std::string& text) {
    put(uint32_t(text.size()));
    append(text.data(), text.size());
  }
  template <class T>
  void put(const std::optional<T>& x) {
    put(x.has_value());
    if (x) put(*x);
  }
  template <class A, class B>
  void put(const std::pair<A, B>& x) {
    put(x.first), put(x.second);
  }
  void append(const void* data, size_t size) {
    const auto* const begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }

  std::vector<std::byte> bytes_;
};

// Reads them; throws where there are too few bytes or a value that no field has.
class FieldReader {
 public:
  template <class T>
  using Of = T;

  explicit FieldReader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <class... T>
  void operator()(T&... fields) {
    (get(fields), ...);
  }
  size_t index(size_t count) {
    uint8_t index = 0;
    get(index);
    if (index >= count) damaged("it is of no known kind");
    return index;
  }
  void end() const {
    if (!left_.empty()) damaged("bytes are left behind it");
  }

 private:
  [[noreturn]] static void damaged(const char* why) { throw Error("a message between replicas is damaged: {}", why); }
  template <class T>
  void get(T& x) {
    if constexpr (kIsNumber<T>) {
      copy(&x, sizeof x);
    } else if constexpr (std::is_same_v<T, bool>) {
      x = small(1) == 1;
    } else if constexpr (std::is_enum_v<T>) {
      x = T(small(uint8_t(last_of<T>())));
    } else {
      name_fields(*this, x);
    }
  }
  template <class T>
  void get(std::vector<T>& all) {
    const size_t count = this->count();
    all.clear();
    if constexpr (kIsNumber<T>) {
      if (count > left_.size() / sizeof(T)) damaged("it ends too early");
      all.resize(count);
      copy(all.data(), count * sizeof(T));
    } else {
      for (size_t i = 0; i < count; ++i) get(all.emplace_back());
    }
  }
  void get(std::string& text) {
    const size_t count = this->count();
    text.resize(count);
    copy(text.data(), count);
  }
  template <class T>
  void get(std::optional<T>& x) {
    bool is_there = false;
    get(is_there);
    x.reset();
    if (is_there) get(x.emplace());
  }
  template <class A, class B>
  void get(std::pair<A, B>& x) {
    get(x.first), get(x.second);
  }

  uint8_t small(uint8_t most) {
    uint8_t value = 0;
    get(value);
    if (value > most) damaged("a value is out of range");
    return value;
  }
  // Of elements, each of which takes a byte or more.
  size_t count() {
    uint32_t count = 0;
    get(count);
    if (count > left_.size()) damaged("it ends too early");
    return count;
  }
  void copy(void* to, size_t size) {
    if (size > left_.size()) damaged("it ends too early");
    if (size > 0) std::memcpy(to, left_.data(), size);
    left_ = left_.subspan(size);
  }

  std::span<const std::byte> left_;
};

template <class Io, class T>
using Field = typename Io::template Of<T>;

template <class Io>
void name_fields(Io& io, Field<Io, SamplingOptions>& x) {
  auto& [temperature, top_k, top_p, min_p, typical_p, seed, presence, frequency, repetition, bias, allowed] = x;
  io(temperature, top_k, top_p, min_p, typical_p, seed, presence, frequency, repetition, bias, allowed);
}
// The constraint goes as a form beside the request.
template <class Io>
void name_fields(Io& io, Field<Io, Request>& x) {
  auto& [kind, prompt, adapter, second_text, pooling, normalises, weighed, max_tokens, min_tokens, sampling,
         stop_tokens, bad_words, constraint, logprobs, prompt_logprobs, priority, user] = x;
  io(kind, prompt, adapter, second_text, pooling, normalises, weighed, max_tokens, min_tokens, sampling, stop_tokens,
     bad_words, logprobs, prompt_logprobs, priority, user);
}
template <class Io>
void name_fields(Io& io, Field<Io, api::OutputForm>& x) {
  auto& [kind, text, choices, schemas, tool_format, is_parallel, has_marker, reasoning_format, reasoning, trigger,
         is_whole_answer, may_be_text] = x;
  io(kind, text, choices, schemas, tool_format, is_parallel, has_marker, reasoning_format, reasoning, trigger,
     is_whole_answer, may_be_text);
}
template <class Io>
void name_fields(Io& io, Field<Io, EngineLimits>& x) {
  auto& [vocab, context, max_running, max_waiting, labels, is_encoder] = x;
  io(vocab, context, max_running, max_waiting, labels, is_encoder);
}
template <class Io>
void name_fields(Io& io, Field<Io, EngineStats>& x) {
  auto& [running, waiting, blocks, blocks_used, block_tokens, tokens_used, prompt, cached, generated, preemptions,
         drafted, accepted, steps, steps_ahead] = x;
  io(running, waiting, blocks, blocks_used, block_tokens, tokens_used, prompt, cached, generated, preemptions,
     drafted, accepted, steps, steps_ahead);
}
template <class Io>
void name_fields(Io& io, Field<Io, Usage>& x) {
  auto& [prompt, cached, completion] = x;
  io(prompt, cached, completion);
}
template <class Io>
void name_fields(Io& io, Field<Io, RequestTimes>& x) {
  auto& [queued, prefill, decode] = x;
  io(queued, prefill, decode);
}
template <class Io>
void name_fields(Io& io, Field<Io, Finish>& x) {
  auto& [reason, stop_token, error, is_refusal, retry_after_s, usage, times] = x;
  io(reason, stop_token, error, is_refusal, retry_after_s, usage, times);
}
template <class Io>
void name_fields(Io& io, Field<Io, TokenLogProb>& x) {
  auto& [token, log_prob] = x;
  io(token, log_prob);
}
template <class Io>
void name_fields(Io& io, Field<Io, ScoredToken>& x) {
  auto& [token, rank, top] = x;
  io(token, rank, top);
}
template <class Io>
void name_fields(Io& io, Field<Io, AnswerToken>& x) {
  auto& [token, scored] = x;
  io(token, scored);
}

template <class Io>
void name_fields(Io& io, Field<Io, Submit>& x) {
  io(x.id, x.request, x.form);
}
template <class Io>
void name_fields(Io& io, Field<Io, Cancel>& x) {
  io(x.id);
}
template <class Io>
void name_fields(Io& io, Field<Io, LoadAdapter>& x) {
  io(x.number, x.name, x.folder);
}
template <class Io>
void name_fields(Io& io, Field<Io, UnloadAdapter>& x) {
  io(x.name);
}
template <class Io>
void name_fields(Io& io, Field<Io, Drain>& x) {
  io(x.patience_ms);
}
template <class Io>
void name_fields(Io&, Field<Io, Stop>&) {}
template <class Io>
void name_fields(Io& io, Field<Io, Hello>& x) {
  io(x.limits, x.adapters);
}
template <class Io>
void name_fields(Io& io, Field<Io, PromptScored>& x) {
  io(x.id, x.tokens);
}
template <class Io>
void name_fields(Io& io, Field<Io, TokensCame>& x) {
  io(x.id, x.tokens);
}
template <class Io>
void name_fields(Io& io, Field<Io, Embedded>& x) {
  io(x.id, x.vector);
}
template <class Io>
void name_fields(Io& io, Field<Io, Finished>& x) {
  io(x.id, x.finish);
}
template <class Io>
void name_fields(Io& io, Field<Io, AdapterLoaded>& x) {
  io(x.number, x.error, x.adapters);
}
template <class Io>
void name_fields(Io& io, Field<Io, StatsCame>& x) {
  io(x.stats);
}
template <class Io>
void name_fields(Io& io, Field<Io, Ended>& x) {
  io(x.error);
}

template <class Message>
std::vector<std::byte> encode_any(const Message& message) {
  FieldWriter writer;
  writer.put_index(message.index());
  std::visit([&](const auto& one) { writer(one); }, message);
  return writer.take();
}

template <class Message>
Message decode_any(std::span<const std::byte> bytes) {
  FieldReader reader(bytes);
  Message message;
  const size_t index = reader.index(std::variant_size_v<Message>);
  [&]<size_t... I>(std::index_sequence<I...>) { ((index == I ? void(message.template emplace<I>()) : void()), ...); }
  (std::make_index_sequence<std::variant_size_v<Message>>());
  std::visit([&](auto& one) { reader(one); }, message);
  reader.end();
  return message;
}

}  // namespace

std::vector<std::byte> encode(const ToReplica& message) { return encode_any(message); }
std::vector<std::byte> encode(const FromReplica& message) { return encode_any(message); }
ToReplica decode_to_replica(std::span<const std::byte> bytes) { return decode_any<ToReplica>(bytes); }
FromReplica decode_from_replica(std::span<const std::byte> bytes) { return decode_any<FromReplica>(bytes); }

}  // namespace weft::remote
