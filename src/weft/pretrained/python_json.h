// Python writes numbers that JSON has no words for: Infinity, -Infinity and NaN, in configurations of models, too.
#pragma once
#include <string>
#include <string_view>

namespace weft {

inline constexpr const char* kPythonNumber = "__float__";
// The same text with each of these as Hugging Face's library from version 5 on has it: {"__float__": "Infinity"}.
std::string without_python_numbers(std::string_view text);

}  // namespace weft
