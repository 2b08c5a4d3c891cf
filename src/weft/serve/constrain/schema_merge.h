// Merging of JSON schemas: one that asks for all that two of them ask for.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace weft::constrain {

using Schema = nlohmann::ordered_json;

// Says something about a schema and nothing about what is valid.
bool is_annotation(const std::string& keyword);

// What is valid under both. Throws UsageError, naming `path`, for keywords that cannot be joined.
Schema merge_schemas(const Schema& a, const Schema& b, const std::string& path);

}  // namespace weft::constrain
