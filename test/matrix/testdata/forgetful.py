"""Stands before a store and loses the replies to the first two ADDs that pass: it hangs up instead.

usage: forgetful.py HOST PORT [KEY], where the store is; the same port here. With a KEY, it loses what follows changes of that key, as in an etcd.
"""
import socket
import sys
import threading

ADD = 4  # as a request begins
to_lose = 2
store = sys.argv[1], int(sys.argv[2])
key = sys.argv[3].encode() if len(sys.argv) > 3 else None


def carry(near, far, passes):
    try:
        while (data := near.recv(1 << 16)) and passes(data):
            far.sendall(data)
    except OSError:
        pass
    for end in near, far:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def serve(client):
    asked = []

    def request(data):
        if key is None:
            asked[:] = [data[0] == ADD]
        elif key in data:
            asked[:] = [True]
        return True

    def reply(data):
        global to_lose
        if asked != [True] or to_lose == 0:
            return True
        to_lose -= 1
        print("lost the reply to an ADD;", to_lose, "to go", flush=True)
        return False

    server = socket.create_connection(store)
    threading.Thread(target=carry, args=(server, client, reply), daemon=True).start()
    carry(client, server, request)


listener = socket.create_server(("", store[1]))
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
