// Arguments as Gemma 4 writes them: {city:<|"|>Rome<|"|>,days:2}, read as JSON.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace weft::api {

// Before and behind a text, in which everything stands as it is.
inline constexpr const char* kTextMark = "<|\"|>";

// Whether a name can stand bare: it has nothing that ends one, and nothing that a reader strips.
bool is_bare_name(std::string_view name);

// The object as JSON: texts between marks, numbers, true, false and null as JSON has them, lists and objects, inside
// each other up to 64 levels; names bare or as texts. Nothing where the text is anything else. Of two of one name the
// last one counts.
std::optional<std::string> json_of_marked_arguments(std::string_view text);

}  // namespace weft::api
