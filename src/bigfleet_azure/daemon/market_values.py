"""Reading the texts of settings about prices and notices; as in `values`."""

import re

_HOST = r"(?:[\w.-]+|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?"


def percent(text: str) -> float:
    """A share written in percent, from 0 to 100; the `%` may be left out."""
    number = text.removesuffix("%").strip()
    if not re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", number) or float(number) > 100:
        raise ValueError("is not a percentage from 0 to 100, such as 20%")
    return float(number) / 100


def discount(text: str) -> float:
    """A percentage below 100, as a share."""
    share = percent(text)
    if share >= 1:
        raise ValueError("would make everything free; give a percentage below 100")
    return share


def prices_endpoint(text: str) -> str:
    """The address of a price service with its path; empty for the default."""
    if text and not re.fullmatch(rf"https://{_HOST}(?:/[\w./-]*)?", text):
        raise ValueError(
            "is no address such as https://prices.azure.com/api/retail/prices, without a query"
        )
    return text.rstrip("/")


def callback_url(text: str) -> str:
    """The address at which machines reach the daemon; empty for none."""
    if text and not re.fullmatch(rf"https?://{_HOST}(?:/[\w./-]*)?", text):
        raise ValueError("is no address such as https://bigfleet-azure.example.com:9443")
    return text.rstrip("/")
