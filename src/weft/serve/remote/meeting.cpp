// Meeting: the front's addresses and a secret go through the job's communicator; then TCP, with a proof from both
// ends.
#include "weft/serve/remote/meeting.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "weft/base/checksum.h"
#include "weft/base/error.h"

namespace weft::remote {
namespace {

using MeetingClock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatienceToMeet{60};
constexpr int kAnswerSeconds = 5;  // what one connection may take to be made, and to prove itself
constexpr size_t kMostAddresses = 16;

using Random = std::array<unsigned char, 32>;
using Proof = std::array<unsigned char, 32>;

struct Invitation {
  uint32_t port = 0, num_addresses = 0;
  std::array<in_addr, kMostAddresses> addresses{};
  Random secret{};
};
static_assert(sizeof(Invitation) % sizeof(int32_t) == 0);

// What comes first from who connects.
struct Greeting {
  std::array<char, 8> magic{'w', 'e', 'f', 't', 'r', 'e', 'p', '1'};
  uint32_t replica = 0;
  Random random{};
};
struct Reply {
  Random random{};
  Proof proof{};
};

std::string address_text(const in_addr& address, uint32_t port) {
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, &address, text.data(), text.size());
  return fmt::format("{}:{}", text.data(), port);
}

Random random_bytes() {
  Random bytes;
  if (RAND_bytes(bytes.data(), int(bytes.size())) != 1) throw Error("there are no random numbers for a secret");
  return bytes;
}

// That `who` knows the secret, for this connection.
Proof proof_of(const Random& secret, char who, const Greeting& greeting, const Random& reply) {
  std::array<unsigned char, 1 + sizeof(Greeting) + sizeof(Random)> text{};
  text[0] = uint8_t(who);
  std::memcpy(&text[1], &greeting, sizeof greeting);
  std::memcpy(&text[1 + sizeof greeting], reply.data(), reply.size());
  Proof proof{};
  unsigned size = 0;
  HMAC(EVP_sha256(), secret.data(), int(secret.size()), text.data(), text.size(), proof.data(), &size);
  return proof;
}
constexpr char kFront = 'F', kReplica = 'R';

bool is_same_proof(const Proof& a, const Proof& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

template <class T>
bool send_all(const Socket& socket, const T& x) {
  return ::send(socket.fd(), &x, sizeof x, MSG_NOSIGNAL) == ssize_t(sizeof x);  // fits an empty buffer
}
template <class T>
bool receive_all(const Socket& socket, T& x) {
  return ::recv(socket.fd(), &x, sizeof x, MSG_WAITALL) == ssize_t(sizeof x);
}

void limit_waits(const Socket& socket, int seconds) {
  const timeval limit{seconds, 0};
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool is_one_machine(Communicator& job, Allocator& memory) {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  const Digest digest = digest_of(bytes_of(std::string_view(name.data())));
  const Tensor own = memory.empty(DType::i64, {1}), all = memory.empty(DType::i64, {job.size()});
  std::memcpy(own.raw(), digest.value.data(), sizeof(int64_t));
  job.all_gather(all, own);
  const std::span<const int64_t> names(all.data<int64_t>(), size_t(job.size()));
  return std::ranges::all_of(names, [&](int64_t one) { return one == names.front(); });
}

// Where other machines may reach this one.
std::vector<in_addr> own_addresses() {
  std::vector<in_addr> found;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) throw Error("the addresses of this machine: {}", std::strerror(errno));
  for (const ifaddrs* one = all; one && found.size() < kMostAddresses; one = one->ifa_next) {
    const bool is_up = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (!is_up || !one->ifa_addr || one->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_in address{};
    std::memcpy(&address, one->ifa_addr, sizeof address);
    found.push_back(address.sin_addr);
  }
  ::freeifaddrs(all);
  if (found.empty()) throw Error("this machine has no IPv4 address at which other replicas could reach it");
  return found;
}

Socket listen_for_replicas(bool is_local, int count, Invitation& invitation) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(is_local ? INADDR_LOOPBACK : INADDR_ANY);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (socket.fd() < 0 || ::bind(socket.fd(), any, size) != 0 || ::listen(socket.fd(), count) != 0 ||
      ::getsockname(socket.fd(), any, &size) != 0)
    throw Error("cannot listen for other replicas: {}", std::strerror(errno));
  const std::vector<in_addr> addresses = is_local ? std::vector{address.sin_addr} : own_addresses();
  invitation.port = ntohs(address.sin_port);
  invitation.num_addresses = uint32_t(addresses.size());
  std::ranges::copy(addresses, invitation.addresses.begin());
  invitation.secret = random_bytes();
  return socket;
}

Invitation share(Communicator& job, int front, const Invitation& invitation, Allocator& memory) {
  const Tensor words = memory.empty(DType::i32, {int64_t(sizeof(Invitation) / sizeof(int32_t))});
  std::memcpy(words.raw(), &invitation, sizeof invitation);
  job.broadcast(words, front);
  Invitation shared;
  std::memcpy(&shared, words.raw(), sizeof shared);
  return shared;
}

// A replica that has proven itself, or nothing: a stranger.
int admit(const Socket& socket, const Random& secret) {
  limit_waits(socket, kAnswerSeconds);
  Greeting greeting;
  const std::array<char, 8> magic = greeting.magic;
  if (!receive_all(socket, greeting) || greeting.magic != magic) return -1;
  Reply reply{.random = random_bytes()};
  reply.proof = proof_of(secret, kFront, greeting, reply.random);
  Proof proof{};
  if (!send_all(socket, reply) || !receive_all(socket, proof)) return -1;
  if (!is_same_proof(proof, proof_of(secret, kReplica, greeting, reply.random))) return -1;
  limit_waits(socket, 0);
  return int(std::min<uint32_t>(greeting.replica, INT32_MAX));
}

std::vector<Socket> await_replicas(const Socket& listener, const Random& secret, int replicas) {
  std::vector<Socket> sockets(size_t(replicas) - 1);
  const auto is_missing = [](const Socket& one) { return one.fd() < 0; };
  const auto deadline = MeetingClock::now() + kPatienceToMeet;
  while (std::ranges::any_of(sockets, is_missing)) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - MeetingClock::now()).count();
    pollfd ready{.fd = listener.fd(), .events = POLLIN, .revents = 0};
    if (left <= 0 || ::poll(&ready, 1, int(left)) == 0)
      throw Error("replica {} did not come within {} s",
                  std::ranges::find_if(sockets, is_missing) - sockets.begin() + 1, kPatienceToMeet.count());
    Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.fd() < 0) continue;
    const int replica = admit(socket, secret);
    if (replica < 1 || replica >= replicas || !is_missing(sockets[size_t(replica) - 1])) continue;
    sockets[size_t(replica) - 1] = std::move(socket);
  }
  return sockets;
}

// Connected, and the other end is the front; else what is wrong.
std::string connect_to(const Socket& socket, const Invitation& invitation, const in_addr& at, int replica) {
  limit_waits(socket, kAnswerSeconds);  // of connect too
  sockaddr_in address{};
  address.sin_family = AF_INET, address.sin_addr = at, address.sin_port = htons(uint16_t(invitation.port));
  if (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return std::strerror(errno);
  Greeting greeting;
  greeting.replica = uint32_t(replica), greeting.random = random_bytes();
  Reply reply;
  if (!send_all(socket, greeting) || !receive_all(socket, reply)) return "no answer";
  if (!is_same_proof(reply.proof, proof_of(invitation.secret, kFront, greeting, reply.random)))
    return "another program listens there";
  if (!send_all(socket, proof_of(invitation.secret, kReplica, greeting, reply.random))) return "no answer";
  limit_waits(socket, 0);
  return {};
}

Socket find_front(const Invitation& invitation, int replica) {
  std::string tried;
  for (uint32_t i = 0; i < std::min<uint32_t>(invitation.num_addresses, kMostAddresses); ++i) {
    const in_addr& at = invitation.addresses[i];
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const std::string wrong = connect_to(socket, invitation, at, replica);
    if (wrong.empty()) return socket;
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : ", ", address_text(at, invitation.port), wrong);
  }
  throw Error("replica {} cannot reach the one that listens ({}): open the ports between the machines", replica,
              tried);
}

}  // namespace

std::vector<Socket> meet(Communicator& job, const ReplicaPlace& place) {
  Allocator memory;
  const bool is_local = is_one_machine(job, memory);
  const bool is_front = job.rank() == place.front;
  Invitation own;
  Socket listener;
  if (is_front) listener = listen_for_replicas(is_local, place.replicas, own);
  const Invitation invitation = share(job, place.front, own, memory);
  std::vector<Socket> sockets;
  if (is_front) return await_replicas(listener, invitation.secret, place.replicas);
  if (place.is_speaker) sockets.push_back(find_front(invitation, place.replica));
  return sockets;
}

}  // namespace weft::remote
