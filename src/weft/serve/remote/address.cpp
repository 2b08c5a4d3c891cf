// Address: sockets of the family that an address is of.
#include "weft/serve/remote/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "weft/base/authority.h"
#include "weft/base/error.h"

namespace weft::remote {
namespace {

// What the system calls take.
struct SocketName {
  sockaddr_storage storage{};
  socklen_t size = 0;

  SocketName(const in_addr& v4, uint32_t port) {
    const sockaddr_in name{.sin_family = AF_INET, .sin_port = htons(uint16_t(port)), .sin_addr = v4, .sin_zero = {}};
    set(name);
  }
  SocketName(const in6_addr& v6, uint32_t port) {
    sockaddr_in6 name{};
    name.sin6_family = AF_INET6, name.sin6_port = htons(uint16_t(port)), name.sin6_addr = v6;
    set(name);
  }
  SocketName(const Address& address, uint32_t port)
      : SocketName(address.is_v4() ? SocketName(address.v4(), port) : SocketName(address.v6(), port)) {}
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  uint32_t port() const {
    uint16_t port = 0;  // lies at the same place in both families
    std::memcpy(&port, reinterpret_cast<const std::byte*>(&storage) + offsetof(sockaddr_in, sin_port), sizeof port);
    return ntohs(port);
  }

 private:
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  template <class Name>
  void set(const Name& name) {
    std::memcpy(&storage, &name, sizeof name);
    size = sizeof name;
  }
};

Socket socket_for(const SocketName& name) {
  return Socket(::socket(name.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

// False, with errno set, where this machine does not listen there.
bool listens(const Socket& socket, SocketName name, int backlog, uint32_t& port) {
  if (socket.fd() < 0 || ::bind(socket.fd(), name.get(), name.size) != 0 || ::listen(socket.fd(), backlog) != 0 ||
      ::getsockname(socket.fd(), name.get(), &name.size) != 0)
    return false;
  port = name.port();
  return true;
}

[[noreturn]] void cannot_listen() { throw Error("cannot listen for other replicas: {}", std::strerror(errno)); }

}  // namespace

Address::Address(const in_addr& v4) {
  v6_.s6_addr[10] = v6_.s6_addr[11] = 0xff;
  std::memcpy(&v6_.s6_addr[12], &v4, sizeof v4);
}

Address Address::loopback() { return Address(in_addr{htonl(INADDR_LOOPBACK)}); }

in_addr Address::v4() const {
  in_addr v4{};
  std::memcpy(&v4, &v6_.s6_addr[12], sizeof v4);
  return v4;
}

std::string Address::with(uint32_t port) const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const in_addr mapped = v4();
  ::inet_ntop(is_v4() ? AF_INET : AF_INET6, is_v4() ? static_cast<const void*>(&mapped) : &v6_, text.data(),
              text.size());
  return authority(text.data(), port);
}

std::vector<Address> own_addresses(size_t most) {
  std::vector<Address> found;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) throw Error("the addresses of this machine: {}", std::strerror(errno));
  for (const ifaddrs* one = all; one && found.size() < most; one = one->ifa_next) {
    const bool is_up = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (!is_up || !one->ifa_addr) continue;
    if (one->ifa_addr->sa_family == AF_INET) {
      sockaddr_in name{};
      std::memcpy(&name, one->ifa_addr, sizeof name);
      found.emplace_back(name.sin_addr);
    } else if (one->ifa_addr->sa_family == AF_INET6) {
      sockaddr_in6 name{};
      std::memcpy(&name, one->ifa_addr, sizeof name);
      if (!IN6_IS_ADDR_LINKLOCAL(&name.sin6_addr)) found.emplace_back(name.sin6_addr);  // means something here alone
    }
  }
  ::freeifaddrs(all);
  if (found.empty()) throw Error("this machine has no address at which other replicas could reach it");
  return found;
}

Socket listen_at(const Address& address, int backlog, uint32_t& port) {
  const SocketName name(address, 0);
  Socket socket = socket_for(name);
  if (!listens(socket, name, backlog, port)) cannot_listen();
  return socket;
}

Socket listen_everywhere(int backlog, uint32_t& port) {
  const SocketName both(in6addr_any, 0), v4(in_addr{htonl(INADDR_ANY)}, 0);
  Socket socket = socket_for(both);
  const int no = 0;
  if (socket.fd() >= 0) ::setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  if (listens(socket, both, backlog, port)) return socket;
  socket = socket_for(v4);  // a machine without IPv6
  if (!listens(socket, v4, backlog, port)) cannot_listen();
  return socket;
}

Socket connect_to(const Address& address, uint32_t port, std::chrono::seconds patience) {
  const SocketName name(address, port);
  Socket socket = socket_for(name);
  if (socket.fd() >= 0) limit_waits(socket, patience);
  if (socket.fd() < 0 || ::connect(socket.fd(), name.get(), name.size) != 0) throw Error("{}", std::strerror(errno));
  return socket;
}

void limit_waits(const Socket& socket, std::chrono::seconds limit) {
  const timeval time{limit.count(), 0};
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

}  // namespace weft::remote
