// HTTP/1.1 on sockets: connections, parsing, limits, and the end of a server that loses nothing.
//
//   HttpServer server({.port = 0}, [](Request request, std::shared_ptr<Reply> reply) {
//     reply->send({.body = "{}\n"});
//   });
//   server.run();  // until somebody calls stop()
//
// The handler is called on a thread of the server, which it must not keep; the reply may be sent
// later, from any thread. A connection's requests are answered one after the other, in their order.
// The library behind it is Boost.Beast, which no other file knows (docs/decisions/serve.md).
//
// Threads: all functions may be called from any.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "heed/serve/message.h"

namespace heed::serve {

struct HttpOptions {
  std::string host = "127.0.0.1";  // an address, or "localhost"
  int port = 5000;                 // 0: any that is free
  int threads = 2;                 // for sockets alone
  uint64_t body_bytes = 16 << 20;  // longer bodies are answered with 413
  uint32_t header_bytes = 16 << 10;
  // More of them at a time: the one that has been idle longest is closed, then the one that has
  // been sending a request longest; where all are being served, the next is answered with 503.
  int64_t connections = 10'000;
  // From the first byte of a request to its last; also how long a client may take to read 64 kB.
  std::chrono::milliseconds read_time{30'000};
  std::chrono::milliseconds idle_time{60'000};  // between two requests of a connection
};

class HttpServer {
 public:
  using Handler = std::function<void(Request, std::shared_ptr<Reply>)>;
  // What is refused before there is a request (400, 408, 413, 431, 503) is told to `refused`.
  using Refused = std::function<void(int status, const std::string& peer)>;
  // Listens at once. Throws Error if it cannot.
  HttpServer(const HttpOptions& options, Handler handler, Refused refused = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  int64_t connections() const;
  // Until it was stopped, and everything that was asked before is answered.
  void run();
  // No new connections; those that are open get an answer to what they ask, and are closed. Called
  // again: at once. May be called by a signal's handler thread, not by the handler itself.
  void stop();

 private:
  class State;
  const std::shared_ptr<State> state_;
};

}  // namespace heed::serve
