// authority: a host and a port as URLs and HTTP write them.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

// An IPv6 address stands in brackets (RFC 3986, 3.2.2): "[::1]:80".
inline std::string authority(std::string_view host, uint32_t port) {
  const bool is_v6 = host.find(':') != std::string_view::npos;
  return fmt::format("{}{}{}:{}", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
}

}  // namespace weft
