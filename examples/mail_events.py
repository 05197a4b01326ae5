"""Mail each event of a webhook with this host's sendmail: python3 mail_events.py PORT SECRET_FILE RECIPIENT."""

import base64
import hmac
import json
import subprocess
import sys
import time
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        timestamp, secret = self.headers.get("webhook-timestamp", "0"), Path(sys.argv[2]).read_bytes().strip()
        signed = hmac.digest(secret, f"{self.headers['webhook-id']}.{timestamp}.".encode() + body, "sha256")
        expected, signature = b"v1," + base64.b64encode(signed), str(self.headers["webhook-signature"]).encode()
        if not hmac.compare_digest(signature, expected) or abs(time.time() - int(timestamp)) > 300:
            return self.send_error(401)
        event, mail = json.loads(body), EmailMessage()
        mail["To"], mail["Message-ID"] = sys.argv[3], f"<{event['id']}@ferroscope>"
        mail["Subject"] = f"{event['type']} {(event['data'].get('node') or {}).get('name', '')!a}"
        mail.set_content(json.dumps(event["data"], indent=2))  # escapes what could mislead a terminal
        is_sent = subprocess.run(["sendmail", "-i", "-t"], input=mail.as_bytes()).returncode == 0
        return self.send_error(204 if is_sent else 503)


HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
