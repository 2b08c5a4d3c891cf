// Arguments that models write as Python does: f(a=1, b="x"), read as JSON.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace weft::api {

// The object that `a=1, b="x"` is, as JSON: strings, numbers, True, False, None, lists, tuples and dicts, inside each
// other up to 64 levels. Nothing where the text is anything else: a call, a sum, an argument without a name. Of two
// of one name the last one counts.
std::optional<std::string> json_of_python_arguments(std::string_view text);

// A name of a function or an argument; of functions it may have dots and dashes.
bool is_python_name(std::string_view name, bool of_function);

}  // namespace weft::api
