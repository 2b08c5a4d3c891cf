// Address: where a machine is reached, by IPv4 or IPv6, and sockets that listen and connect there.
#pragma once
#include <netinet/in.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/serve/remote/channel.h"

namespace weft::remote {

// Plain bytes, so that messages can hold it.
class Address {
 public:
  Address() = default;  // ::
  explicit Address(const in6_addr& v6) : v6_(v6) {}
  explicit Address(const in_addr& v4);  // as RFC 4291, 2.5.5.2, maps it
  static Address loopback();            // 127.0.0.1

  bool is_v4() const { return IN6_IS_ADDR_V4MAPPED(&v6_); }
  in_addr v4() const;  // of one that is
  const in6_addr& v6() const { return v6_; }
  std::string with(uint32_t port) const;  // "10.0.0.1:80", "[fd00::1]:80"

 private:
  in6_addr v6_{};
};

// Of the interfaces that are up, where other machines may reach this one; `most` at most.
std::vector<Address> own_addresses(size_t most);

// Listens at a free port, which is put into `port`: at one address, or at all that this machine has, of IPv6 too
// where it speaks that. Throws Error.
Socket listen_at(const Address& address, int backlog, uint32_t& port);
Socket listen_everywhere(int backlog, uint32_t& port);

// Throws Error with what is wrong where it does not connect in time.
Socket connect_to(const Address& address, uint32_t port, std::chrono::seconds patience);

// How long each call that sends or receives may wait; zero: as long as it takes. A connect counts as one that sends.
void limit_waits(const Socket& socket, std::chrono::seconds limit);

}  // namespace weft::remote
