// The machine that reads pickles: a stack, a memo, and operations that only ever build data.
#include "weft/formats/pickle.h"

#include <bit>
#include <unordered_map>

#include "weft/base/error.h"
#include "weft/base/excerpt.h"

namespace weft {
namespace {

constexpr uint64_t kMaxBytes = 64 << 20, kMaxOperations = 2 << 20;  // about 35 for each tensor
constexpr uint64_t kMaxGlobalBytes = 1024;

}  // namespace

// The letters of operations are those of Python's pickletools.
class PickleMachine {
 public:
  PickleMachine(Pickle& pickle, Bytes bytes, const std::string& source,
                FunctionRef<bool(std::string_view)> is_allowed)
      : pickle_(pickle), bytes_(bytes), source_(source), is_allowed_(is_allowed) {}

  PickleValue run() {
    if (bytes_.size() > kMaxBytes) fail("it has more than {} bytes", kMaxBytes);
    for (uint64_t count = 0; count < kMaxOperations; ++count) {
      const uint8_t operation = number<uint8_t>();
      if (operation == '.') {
        if (stack_.size() != 1 || !marks_.empty()) fail("it ends with {} values on its stack", stack_.size());
        return stack_.back();
      }
      if (!read_scalar(operation) && !read_memo(operation) && !read_container(operation)) read_object(operation);
    }
    fail("it has more than {} operations", kMaxOperations);
  }

 private:
  using Kind = PickleNode::Kind;

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error("{}: the pickle is damaged or no state dict, at byte {}: {}", source_, at_,
                fmt::format(format, std::forward<Args>(args)...));
  }

  Bytes take(uint64_t size) {
    const auto taken = subrange(bytes_, at_, size);
    if (!taken) fail("it was cut short");
    at_ += size;
    return *taken;
  }
  template <class T>
  T number() {
    return load_le<T>(take(sizeof(T)).data());
  }
  std::string_view line() {
    const std::string_view rest = text_of(bytes_).substr(at_);
    const size_t end = rest.substr(0, kMaxGlobalBytes).find('\n');
    if (end == rest.npos) fail("a name has no end");
    at_ += end + 1;
    return rest.substr(0, end);
  }

  void push(PickleValue value) { stack_.push_back(value); }
  PickleNode* make(Kind kind, std::vector<PickleValue> items = {}) {
    return &pickle_.nodes_.emplace_back(PickleNode{.kind = kind, .items = std::move(items)});
  }
  PickleValue pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("its stack is empty");
    const PickleValue value = stack_.back();
    stack_.pop_back();
    return value;
  }
  // What was pushed since the last mark, which goes with it.
  std::vector<PickleValue> pop_to_mark() {
    if (marks_.empty()) fail("a mark is missing");
    const auto begin = stack_.begin() + ptrdiff_t(marks_.back());
    marks_.pop_back();
    std::vector<PickleValue> values(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    return values;
  }
  std::vector<PickleValue> pop_last(size_t count) {
    std::vector<PickleValue> values(count);
    for (size_t i = count; i > 0; --i) values[i - 1] = pop();
    return values;
  }
  // The container on top of the stack that items are added to. Those of a call are what OrderedDict() made.
  PickleNode& top_container(bool is_dict) {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("its stack is empty");
    PickleNode* const* node = std::get_if<PickleNode*>(&stack_.back());
    const bool fits =
        node && (is_dict ? (*node)->kind == Kind::dict || (*node)->kind == Kind::call : (*node)->kind == Kind::list);
    if (!fits) fail("items are added to what is no {}", is_dict ? "dict" : "list");
    return **node;
  }
  void add_items(bool is_dict, const std::vector<PickleValue>& values) {
    if (is_dict && values.size() % 2 != 0) fail("a dict has a key without a value");
    std::vector<PickleValue>& items = top_container(is_dict).items;
    items.insert(items.end(), values.begin(), values.end());
  }

  void push_text(uint64_t size) { push(text_of(take(size))); }

  // Little-endian two's complement, of any length.
  void push_long(uint64_t size) {
    const Bytes bytes = take(size);
    if (size > 8) fail("an integer has {} bytes", size);
    uint64_t value = size > 0 && (bytes[size - 1] & std::byte(0x80)) != std::byte(0) ? UINT64_MAX : 0;
    for (uint64_t i = size; i > 0; --i) value = value << 8 | uint64_t(bytes[i - 1]);
    push(int64_t(value));
  }

  bool read_scalar(uint8_t operation) {
    switch (operation) {
      case 0x80:  // PROTO
        if (const int protocol = number<uint8_t>(); protocol > 5) fail("protocol {} is unknown", protocol);
        break;
      case 0x95: take(8); break;  // FRAME: only a hint for buffering
      case 'N': push(PickleNone()); break;
      case 0x88: push(true); break;
      case 0x89: push(false); break;
      case 'J': push(int64_t(number<int32_t>())); break;
      case 'K': push(int64_t(number<uint8_t>())); break;
      case 'M': push(int64_t(number<uint16_t>())); break;
      case 0x8a: push_long(number<uint8_t>()); break;
      case 0x8b: push_long(number<uint32_t>()); break;
      case 'G': push(big_endian_double()); break;
      case 'X': push_text(number<uint32_t>()); break;
      case 0x8c: push_text(number<uint8_t>()); break;
      case 0x8d: push_text(number<uint64_t>()); break;
      case 'U': push_text(number<uint8_t>()); break;  // str of Python 2
      case 'T': push_text(number<uint32_t>()); break;
      default: return false;
    }
    return true;
  }

  double big_endian_double() {
    uint64_t bits = 0;
    for (const std::byte b : take(8)) bits = bits << 8 | uint64_t(b);
    return std::bit_cast<double>(bits);
  }

  bool read_memo(uint8_t operation) {
    switch (operation) {
      case 'q': remember(number<uint8_t>()); break;
      case 'r': remember(number<uint32_t>()); break;
      case 0x94: remember(uint32_t(memo_.size())); break;
      case 'h': recall(number<uint8_t>()); break;
      case 'j': recall(number<uint32_t>()); break;
      default: return false;
    }
    return true;
  }
  void remember(uint32_t index) {
    const PickleValue value = pop();
    memo_[index] = value;
    push(value);
  }
  void recall(uint32_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) fail("it refers to value {}, which it has not remembered", index);
    push(found->second);
  }

  bool read_container(uint8_t operation) {
    switch (operation) {
      case '(': marks_.push_back(stack_.size()); break;
      case '0': pop(); break;
      case '1': pop_to_mark(); break;
      case ']': push(make(Kind::list)); break;
      case ')': push(make(Kind::tuple)); break;
      case '}': push(make(Kind::dict)); break;
      case 0x85: push(make(Kind::tuple, pop_last(1))); break;
      case 0x86: push(make(Kind::tuple, pop_last(2))); break;
      case 0x87: push(make(Kind::tuple, pop_last(3))); break;
      case 't': push(make(Kind::tuple, pop_to_mark())); break;
      case 'l': push(make(Kind::list, pop_to_mark())); break;
      case 'd': {
        const std::vector<PickleValue> items = pop_to_mark();
        push(make(Kind::dict));
        add_items(true, items);
        break;
      }
      case 'a': add_items(false, pop_last(1)); break;
      case 'e': add_items(false, pop_to_mark()); break;
      case 's': add_items(true, pop_last(2)); break;
      case 'u': add_items(true, pop_to_mark()); break;
      default: return false;
    }
    return true;
  }

  void read_object(uint8_t operation) {
    switch (operation) {
      case 'c': {
        const std::string_view module = line();
        push_global(module, line());
        break;
      }
      case 0x93: {
        const std::vector<PickleValue> names = pop_last(2);
        const auto *module = std::get_if<std::string_view>(&names[0]),
                   *name = std::get_if<std::string_view>(&names[1]);
        if (!module || !name) fail("the name of a global is no text");
        push_global(*module, *name);
        break;
      }
      case 'R': push_call(); break;
      case 'b': {  // BUILD: attributes of a dict, such as a state dict's _metadata, which are no tensors
        pop();
        top_container(true);
        break;
      }
      case 'Q': {
        PickleNode* node = make(Kind::persistent);
        node->operand = pop();
        push(node);
        break;
      }
      default: fail("it has the operation {:#04x}, which is not needed for tensors", operation);
    }
  }

  void push_global(std::string_view module, std::string_view name) {
    if (module.size() + name.size() > kMaxGlobalBytes) fail("the name of a global is too long");
    const std::string& global = pickle_.names_.emplace_back(fmt::format("{} {}", module, name));
    if (!is_allowed_(global)) {
      throw Error(
          "{}: the pickle asks for {}.{}, which is refused: it could run any code. Save the tensors alone, or as "
          "safetensors",
          source_, excerpt(module), excerpt(name));
    }
    push(PickleGlobal{global});
  }

  void push_call() {
    const std::vector<PickleValue> values = pop_last(2);
    const auto* function = std::get_if<PickleGlobal>(&values[0]);
    PickleNode* const* operands = std::get_if<PickleNode*>(&values[1]);
    if (!function || !operands || (*operands)->kind != Kind::tuple) fail("a call has no function or no arguments");
    PickleNode* node = make(Kind::call);
    node->function = *function;
    node->operand = *operands;
    push(node);
  }

  Pickle& pickle_;
  Bytes bytes_;
  const std::string& source_;
  FunctionRef<bool(std::string_view)> is_allowed_;
  uint64_t at_ = 0;
  std::vector<PickleValue> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, PickleValue> memo_;
};

Pickle::Pickle(Bytes bytes, const std::string& source, FunctionRef<bool(std::string_view)> is_allowed) {
  root_ = PickleMachine(*this, bytes, source, is_allowed).run();
}

}  // namespace weft
