// TLS: a client of OpenSSL's own talks to the server; one that speaks plainly gets nothing.
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "base/temporary_folder.h"
#include "serve/test_server.h"

namespace weft {
namespace {

template <class T, void (*free)(T*)>
struct Freed {
  void operator()(T* object) const { free(object); }
};
template <class T, void (*free)(T*)>
using Owned = std::unique_ptr<T, Freed<T, free>>;

// A certificate that signs itself, and its key, as PEM files in `folder`.
void write_certificate(const std::string& folder) {
  const Owned<EVP_PKEY, EVP_PKEY_free> key(EVP_EC_gen("P-256"));
  const Owned<X509, X509_free> cert(X509_new());
  ASN1_INTEGER_set(X509_get_serialNumber(cert.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(cert.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(cert.get()), 3600);
  X509_set_pubkey(cert.get(), key.get());
  X509_NAME* const name = X509_get_subject_name(cert.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1,
                             0);
  X509_set_issuer_name(cert.get(), name);
  X509_sign(cert.get(), key.get(), EVP_sha256());
  std::FILE* file = std::fopen((folder + "/cert.pem").c_str(), "w");
  PEM_write_X509(file, cert.get());
  std::fclose(file);
  file = std::fopen((folder + "/key.pem").c_str(), "w");
  PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
}

TEST(TlsTest, AnswersBehindAHandshakeAndNotWithout) {
  const TemporaryFolder folder;
  write_certificate(folder.path());
  TestSetup setup;
  setup.server.tls_cert = folder / "cert.pem";
  setup.server.tls_key = folder / "key.pem";
  TestServer server(std::move(setup));

  const Owned<SSL_CTX, SSL_CTX_free> context(SSL_CTX_new(TLS_client_method()));
  bench::HttpClient connection = server.connect();
  const Owned<SSL, SSL_free> tls(SSL_new(context.get()));
  SSL_set_fd(tls.get(), connection.fd());
  ASSERT_EQ(SSL_connect(tls.get()), 1);
  EXPECT_GE(SSL_version(tls.get()), TLS1_2_VERSION);
  for (int i = 0; i < 2; ++i) {
    const std::string body = R"({"prompt": "x", "max_tokens": 50})";
    const std::string request = fmt::format(
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{}", body.size(), body);
    ASSERT_GT(SSL_write(tls.get(), request.data(), int(request.size())), 0);
    std::string reply;
    char chunk[4096];
    while (reply.find("\"usage\"") == std::string::npos) {
      const int n = SSL_read(tls.get(), chunk, sizeof chunk);
      ASSERT_GT(n, 0);
      reply.append(chunk, size_t(n));
    }
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 200 OK\r\n"));
    EXPECT_NE(reply.find("Hello, world."), std::string::npos);
  }
  bench::HttpClient plain = server.connect(std::chrono::seconds(5));
  EXPECT_THROW(plain.request("GET", "/health"), Error);
}

}  // namespace
}  // namespace weft
