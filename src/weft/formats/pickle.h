// Pickle: Python's serialised objects as plain data. Nothing is ever called: a call in the file is a node that says
// which function was meant, and only functions that the reader names are read at all.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "weft/base/bytes.h"
#include "weft/base/function_ref.h"

namespace weft {

struct PickleNode;

// "collections OrderedDict": a name of Python that stands for a class or function.
struct PickleGlobal {
  std::string_view name;
};

struct PickleNone {};

// Text refers to the pickle's bytes, nodes to the Pickle.
using PickleValue = std::variant<PickleNone, bool, int64_t, double, std::string_view, PickleGlobal, PickleNode*>;

struct PickleNode {
  enum class Kind { list, tuple, dict, call, persistent };
  Kind kind;
  std::vector<PickleValue> items;  // of a dict, and of a call that made one: key, value, key, value, ...
  PickleGlobal function;           // of a call
  PickleValue operand;             // of a call, the tuple of its arguments; of a persistent reference, what it says
};

// The objects of a pickle, of protocol 2 to 5. Throws Error "SOURCE: ..." for what is damaged, too large or too long,
// and names every global that `is_allowed` refuses.
class Pickle {
 public:
  Pickle(Bytes bytes, const std::string& source, FunctionRef<bool(std::string_view global)> is_allowed);
  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;

  const PickleValue& root() const { return root_; }

 private:
  friend class PickleMachine;
  std::deque<PickleNode> nodes_;
  std::deque<std::string> names_;
  PickleValue root_;
};

}  // namespace weft
