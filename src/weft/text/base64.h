// Base64: bytes as text (RFC 4648, with padding).
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace weft {

std::string base64_of(std::string_view bytes);
std::optional<std::string> bytes_of_base64(std::string_view text);  // nothing for text that is not base64

}  // namespace weft
