"""Schemas written by hand, for bodies of which no machine-readable description is at hand.

Each says where it was read from. They are as strict as the recorded bodies allow, and the tests
hold them to those. A body that has an official schema must not get one here.
"""

from collections.abc import Mapping
from typing import Any

from tests.support.arm.truth.documents import Document

_TEXT: Mapping[str, Any] = {"type": "string"}
_NUMBER: Mapping[str, Any] = {"type": "number"}
_FLAG: Mapping[str, Any] = {"type": "boolean"}
_WHOLE: Mapping[str, Any] = {"type": "integer"}
_TIME: Mapping[str, Any] = {"type": "string", "format": "date-time"}
_TEXTS: Mapping[str, Any] = {"type": "array", "items": _TEXT}


def _closed(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(required)}


_PRICE_TEXTS = (
    "currencyCode",
    "armRegionName",
    "location",
    "meterId",
    "meterName",
    "productId",
    "skuId",
    "productName",
    "skuName",
    "serviceName",
    "serviceId",
    "serviceFamily",
    "unitOfMeasure",
    "type",
    "armSkuName",
)

_DEFINITIONS: dict[str, Any] = {
    # ARM's common error (the resource provider contract), as the recorded 4xx bodies show it.
    "ErrorBody": _closed(
        {
            "code": _TEXT,
            "message": _TEXT,
            "target": _TEXT,
            "details": {"type": "array", "items": {"$ref": "#/definitions/ErrorBody"}},
            "innererror": {"type": "object"},
            "additionalInfo": {
                "type": "array",
                "items": _closed({"type": _TEXT, "info": {"type": "object"}}, "type", "info"),
            },
        },
        "code",
        "message",
    ),
    "Error": _closed({"error": {"$ref": "#/definitions/ErrorBody"}}, "error"),
    # Compute's operation status: the recorded polls; `properties` carries the result of an action.
    "ComputeOperation": _closed(
        {
            "startTime": _TIME,
            "endTime": _TIME,
            "status": {"type": "string", "enum": ["InProgress", "Succeeded", "Failed", "Canceled"]},
            "name": _TEXT,
            "error": {"$ref": "#/definitions/ErrorBody"},
            "properties": {"type": "object"},
        },
        "startTime",
        "status",
        "name",
    ),
    # The network provider's operation status: nothing but the status, and the error of a failure.
    "NetworkOperation": _closed(
        {
            "status": {"type": "string", "enum": ["InProgress", "Succeeded", "Failed", "Canceled"]},
            "error": {"$ref": "#/definitions/ErrorBody"},
        },
        "status",
    ),
    # Microsoft Entra: the recorded token answer and the two discovery documents.
    "Token": _closed(
        {
            "token_type": _TEXT,
            "expires_in": _WHOLE,
            "ext_expires_in": _WHOLE,
            "refresh_in": _WHOLE,
            "access_token": _TEXT,
        },
        "token_type",
        "expires_in",
        "ext_expires_in",
        "access_token",
    ),
    # Microsoft Learn, "How to use managed identities for Azure resources on an Azure VM to acquire
    # an access token": all numbers are texts.
    "MetadataToken": _closed(
        {
            "access_token": _TEXT,
            "client_id": _TEXT,
            "expires_in": _TEXT,
            "expires_on": _TEXT,
            "ext_expires_in": _TEXT,
            "not_before": _TEXT,
            "resource": _TEXT,
            "token_type": _TEXT,
        },
        "access_token",
        "expires_on",
        "resource",
        "token_type",
    ),
    "TokenError": _closed(
        {
            "error": _TEXT,
            "error_description": _TEXT,
            "error_codes": {"type": "array", "items": _WHOLE},
            "timestamp": _TEXT,
            "trace_id": _TEXT,
            "correlation_id": _TEXT,
            "error_uri": _TEXT,
        },
        "error",
        "error_description",
    ),
    "OpenIdConfiguration": _closed(
        {
            "token_endpoint": _TEXT,
            "token_endpoint_auth_methods_supported": _TEXTS,
            "jwks_uri": _TEXT,
            "response_modes_supported": _TEXTS,
            "subject_types_supported": _TEXTS,
            "id_token_signing_alg_values_supported": _TEXTS,
            "response_types_supported": _TEXTS,
            "scopes_supported": _TEXTS,
            "issuer": _TEXT,
            "request_uri_parameter_supported": {"type": "boolean"},
            "userinfo_endpoint": _TEXT,
            "authorization_endpoint": _TEXT,
            "device_authorization_endpoint": _TEXT,
            "http_logout_supported": {"type": "boolean"},
            "frontchannel_logout_supported": {"type": "boolean"},
            "end_session_endpoint": _TEXT,
            "claims_supported": _TEXTS,
            "kerberos_endpoint": _TEXT,
            "tenant_region_scope": {"type": ["string", "null"]},
            "cloud_instance_name": _TEXT,
            "cloud_graph_host_name": _TEXT,
            "msgraph_host": _TEXT,
            "rbac_url": _TEXT,
        },
        "token_endpoint",
        "issuer",
        "authorization_endpoint",
    ),
    "InstanceDiscovery": _closed(
        {
            "tenant_discovery_endpoint": _TEXT,
            "api-version": _TEXT,
            "metadata": {
                "type": "array",
                "items": _closed(
                    {"preferred_network": _TEXT, "preferred_cache": _TEXT, "aliases": _TEXTS},
                    "preferred_network",
                    "preferred_cache",
                    "aliases",
                ),
            },
        },
        "tenant_discovery_endpoint",
        "metadata",
    ),
    # The Retail Prices API: the recorded pages; `effectiveEndDate` as its documentation has it.
    "PriceRow": _closed(
        {
            **dict.fromkeys(_PRICE_TEXTS, _TEXT),
            "tierMinimumUnits": _NUMBER,
            "retailPrice": _NUMBER,
            "unitPrice": _NUMBER,
            "effectiveStartDate": _TIME,
            "effectiveEndDate": _TIME,
            "reservationTerm": {"type": "string", "enum": ["1 Year", "3 Years"]},
            "isPrimaryMeterRegion": _FLAG,
            "savingsPlan": {
                "type": "array",
                "items": _closed(
                    {"unitPrice": _NUMBER, "retailPrice": _NUMBER, "term": _TEXT},
                    *("unitPrice", "retailPrice", "term"),
                ),
            },
        },
        *_PRICE_TEXTS,
        *("tierMinimumUnits", "retailPrice", "unitPrice"),
        *("effectiveStartDate", "isPrimaryMeterRegion"),
    ),
    "PricePage": _closed(
        {
            "BillingCurrency": _TEXT,
            "CustomerEntityId": _TEXT,
            "CustomerEntityType": _TEXT,
            "Items": {"type": "array", "items": {"$ref": "#/definitions/PriceRow"}},
            "NextPageLink": {"type": ["string", "null"]},
            "Count": _WHOLE,
        },
        *("BillingCurrency", "CustomerEntityId", "CustomerEntityType"),
        *("Items", "NextPageLink", "Count"),
    ),
    "PriceError": _closed(
        {"Error": _closed({"Code": _TEXT, "Message": _TEXT}, "Code", "Message")}, "Error"
    ),
}

HANDMADE = Document("handmade", {"definitions": _DEFINITIONS})

ANSWERS: Mapping[str, str] = {
    "token": "Token",
    "metadata.token": "MetadataToken",
    "openid-configuration": "OpenIdConfiguration",
    "instance-discovery": "InstanceDiscovery",
    "compute.operation": "ComputeOperation",
    "network.operation": "NetworkOperation",
    "prices": "PricePage",
}
"""The hand-made schema of a route's 200 answer."""
