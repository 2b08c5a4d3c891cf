// Formats of texts: RFC 3339 for times and durations, RFC 4291 for IPv6, RFC 3986 for URIs, RFC 6901 for pointers.
#include "weft/serve/constrain/schema_formats.h"

#include <map>

namespace weft::constrain {

const char* regex_of_format(const std::string& format) {
#define WEFT_DATE                                                                                 \
  "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|" \
  "02-(?:0[1-9]|1\\d|2[0-8]))|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
#define WEFT_TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define WEFT_BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define WEFT_HOST "(?:[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?\\.){0,4}[a-z]{2,12}"
#define WEFT_HEX "[0-9a-fA-F]{1,4}"
#define WEFT_DAYS "(?:\\d{1,4}Y(?:\\d{1,2}M(?:\\d{1,2}D)?)?|\\d{1,2}M(?:\\d{1,2}D)?|\\d{1,3}D)"
#define WEFT_HOURS "(?:\\d{1,4}H(?:\\d{1,2}M(?:\\d{1,2}S)?)?|\\d{1,4}M(?:\\d{1,2}S)?|\\d{1,5}S)"
  static const std::map<std::string, const char*> formats = {
      {"date", WEFT_DATE},
      {"time", WEFT_TIME},
      {"date-time", WEFT_DATE "T" WEFT_TIME},
      {"uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
      {"ipv4", WEFT_BYTE "(?:\\." WEFT_BYTE "){3}"},
      {"hostname", WEFT_HOST},
      {"uri", "[a-z][a-z0-9+.-]{1,15}://" WEFT_HOST "(?::[1-9]\\d{0,3})?(?:/[A-Za-z0-9._~-]{1,64}){0,16}/?"
              "(?:\\?[A-Za-z0-9._~=&+-]{1,256})?(?:#[A-Za-z0-9._~-]{1,64})?"},
      {"ipv6", "(?:" WEFT_HEX ":){7}" WEFT_HEX "|(?:" WEFT_HEX ":){1,5}(?::" WEFT_HEX ")|::(?:" WEFT_HEX ")?"},
      {"duration", "P(?:\\d{1,4}W|" WEFT_DAYS "(?:T" WEFT_HOURS ")?|T" WEFT_HOURS ")"},
      {"json-pointer", "(?:/(?:[^/~]|~[01])*)*"},
      {"email", "[A-Za-z0-9_%+-]{1,32}(?:\\.[A-Za-z0-9_%+-]{1,16}){0,2}@(?:[a-z0-9]{1,32}\\.){1,3}[a-z]{2,12}"}};
#undef WEFT_DATE
#undef WEFT_TIME
#undef WEFT_BYTE
#undef WEFT_HOST
#undef WEFT_HEX
#undef WEFT_DAYS
#undef WEFT_HOURS
  const auto found = formats.find(format);
  return found == formats.end() ? nullptr : found->second;
}

}  // namespace weft::constrain
