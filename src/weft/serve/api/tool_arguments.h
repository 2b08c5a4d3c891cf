// Arguments of tool calls that stand between tags: texts as they are, other values as JSON. What a text is only the
// tool's schema tells.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::api {

struct TaggedArgument {
  std::string name, text;            // what stood between the tags
  std::optional<bool> is_text = {};  // where the tags themselves say so
};
using TaggedArguments = std::vector<TaggedArgument>;

// The object that they are, as JSON. `schema`: of the tool's parameters, or empty when it is not known; then, and of
// arguments that it does not know, what is JSON and no text is read as such. Of two of one name the last one counts.
std::string json_of_arguments(const TaggedArguments& arguments, std::string_view schema);

}  // namespace weft::api
