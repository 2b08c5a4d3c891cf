// Addresses as text, and sockets that listen and connect at them, by IPv4 and IPv6.
#include "weft/serve/remote/address.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include "weft/base/error.h"

namespace weft::remote {
namespace {

using namespace std::chrono_literals;

Address v4(const char* text) {
  in_addr address{};
  EXPECT_EQ(::inet_pton(AF_INET, text, &address), 1);
  return Address(address);
}
Address v6(const char* text) {
  in6_addr address{};
  EXPECT_EQ(::inet_pton(AF_INET6, text, &address), 1);
  return Address(address);
}

TEST(AddressTest, IsWrittenAsInAUrl) {
  EXPECT_EQ(v4("10.1.2.3").with(80), "10.1.2.3:80");
  EXPECT_EQ(Address::loopback().with(65535), "127.0.0.1:65535");
  EXPECT_EQ(v6("fd00::12").with(80), "[fd00::12]:80");
  EXPECT_EQ(v6("::ffff:10.1.2.3").with(80), "10.1.2.3:80");
  EXPECT_TRUE(v4("10.1.2.3").is_v4());
  EXPECT_FALSE(v6("::1").is_v4());
}

// A machine without a network has none.
std::vector<Address> own_or_none() {
  try {
    return own_addresses(16);
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("no address at which other replicas"), std::string::npos) << e.what();
    return {};
  }
}

// Bytes go from one end to the other, at a port that was free.
void expect_connected(const Socket& listener, const Address& at, uint32_t port) {
  const Socket here = connect_to(at, port, 5s);
  const Socket there(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_GE(there.fd(), 0) << at.with(port);
  char got = 0;
  ASSERT_EQ(::send(here.fd(), "x", 1, MSG_NOSIGNAL), 1);
  ASSERT_EQ(::recv(there.fd(), &got, 1, MSG_WAITALL), 1);
  EXPECT_EQ(got, 'x');
}

TEST(AddressTest, ListensAtOneAddressAlone) {
  uint32_t port = 0;
  const Socket listener = listen_at(Address::loopback(), 1, port);
  ASSERT_GT(port, 0u);
  expect_connected(listener, Address::loopback(), port);
  for (const Address& other : own_or_none()) EXPECT_THROW(connect_to(other, port, 5s), Error) << other.with(port);
}

TEST(AddressTest, ListensAtAllThatThisMachineHas) {
  uint32_t port = 0;
  const Socket listener = listen_everywhere(4, port);
  ASSERT_GT(port, 0u);
  expect_connected(listener, Address::loopback(), port);
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  ASSERT_EQ(::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&name), &size), 0);
  if (name.ss_family == AF_INET6) expect_connected(listener, v6("::1"), port);
  for (const Address& own : own_or_none()) expect_connected(listener, own, port);
}

TEST(AddressTest, FindsNoMoreAddressesThanAskedForAndNoneOfOneLink) {
  const std::vector<Address> all = own_or_none();
  if (all.empty()) GTEST_SKIP() << "no network";
  EXPECT_EQ(own_addresses(1).size(), 1u);
  EXPECT_LE(all.size(), 16u);
  for (const Address& one : all) EXPECT_FALSE(one.with(1).starts_with("[fe80:")) << one.with(1);
}

TEST(AddressTest, SaysWhyItDoesNotConnect) {
  const Socket silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // has a port, and does not listen there
  sockaddr_in name{};
  name.sin_family = AF_INET, name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof name;
  ASSERT_EQ(::bind(silent.fd(), reinterpret_cast<sockaddr*>(&name), size), 0);
  ASSERT_EQ(::getsockname(silent.fd(), reinterpret_cast<sockaddr*>(&name), &size), 0);
  try {
    connect_to(Address::loopback(), ntohs(name.sin_port), 5s);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "Connection refused");
  }
}

}  // namespace
}  // namespace weft::remote
